"""Quantizes one model with llm-compressor and with curvq on the same token ids, and compares them.

    side_by_side.py MODEL [--data FILE.safetensors] [--calibration FILE.safetensors:NAME] [--evaluation FILE.safetensors:NAME]
        [--windows CALIBRATION,EVALUATION] [--length N] [--formats nvfp4,mxfp4,int4-g64,int4-g32]
        [--peer-captures sequential,float,mse] [--curvq-captures sequential,float,best] [--only peer|curvq]
        [--curvq BINARY] [--threads N] [--repeats N] [--seeds N] [--work DIR] [--out FILE.json]

Token ids are [windows, length]: by default `calib` and `eval` of --data, of which the first 32 windows calibrate and the first 16
evaluate. Each run, from start to written checkpoint, is a child process of its own, and the two programs take turns; its processor
time is user + system, its memory the largest resident set. Then transformers loads the checkpoints (tests/client/client_check.py)
and computes perplexity, KL(original || quantized) and top-1 agreement in float32. Times are medians over the repeats.

The capture `best` is curvq's --preset best, which draws labels: the mean over --seeds draws. `mse` is llm-compressor with searched
scales, where it has that. The last two columns are the KL over that of llm-compressor's better plain GPTQ and over its best. Results
are written after every format; with --only, rows of the other program stay as the file has them.

    scripts/setup-client                                         # the client, in .deps/client
    scripts/setup-client .deps/peer bench/peer-requirements.txt  # llm-compressor, in .deps/peer
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import time

TOP = pathlib.Path(__file__).resolve().parent.parent
CURVQ_SCHEMES = {
    "nvfp4": ["--scheme", "nvfp4"],
    "mxfp4": ["--scheme", "mxfp4"],
    "int4-g64": ["--scheme", "int4", "--group-size", "64"],
    "int4-g32": ["--scheme", "int4", "--group-size", "32"],
}
NOT_SEARCHED = ("mxfp4",)  # llm-compressor searches no scales of these
EVALUATED = ("perplexity", "nll", "kl_mean", "top1_agreement")
COLUMNS = {
    "format": "{}",
    "program": "{}",
    "capture": "{}",
    "perplexity": "{:.3f}",
    "kl_mean": "{:.4f}",
    "top1_agreement": "{:.3f}",
    "cpu_seconds": "{:.1f}",
    "wall_seconds": "{:.1f}",
    "peak_rss_mib": "{:.0f}",
    "kl_over_plain": "{:.3f}",
    "kl_over_best": "{:.3f}",
}


def run_measured(command: list, log: pathlib.Path, threads: int) -> dict:
    """Runs a command to its end; what it prints on stderr goes to `log`.

    A child starts with the resident set of its parent, so this script imports nothing
    large.
    """
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
    words = [str(word) for word in command]
    start = time.monotonic()
    with log.open("w") as errors:
        child = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=errors, env=environment, text=True
        )
        output = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{' '.join(words)}: exit status {child.returncode}, see {log}")
    return {
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "wall_seconds": time.monotonic() - start,
        "peak_rss_mib": usage.ru_maxrss / 1024,
        "output": output,
    }


def json_of_last_line(run: dict) -> dict:
    return json.loads(run["output"].strip().splitlines()[-1])


class Case:
    """One program with one way of capturing, on one format."""

    def __init__(self, options, scheme: str, program: str, capture: str):
        self.options, self.scheme, self.program, self.capture = options, scheme, program, capture
        name = f"{pathlib.Path(options.model).name}-{scheme}-{program}-{capture}"
        self.checkpoint = options.work / name
        self.log = options.work / f"{name}.log"
        self.runs = []
        self.evaluations = []

    def command(self) -> list:
        options = self.options
        samples = ["--calibration", options.calibration, "--num-samples", options.windows[0]]
        best = self.capture == "best"
        samples += ["--max-length", options.length, "--capture", "sequential" if best else self.capture]
        if self.program == "llm-compressor":
            script = TOP / "bench/quantize_llm_compressor.py"
            start = [options.peer_python, script, options.model, self.checkpoint]
            return [*start, "--scheme", self.scheme, *samples]
        start = [options.curvq, "quantize", options.model, "--out", self.checkpoint]
        rounding = [*CURVQ_SCHEMES[self.scheme], "--method", "gptq", "--on-indivisible", "keep"]
        rounding += ["--preset", "best", "--seed", len(self.runs)] if best else []
        return [*start, *rounding, *samples, "--threads", options.threads]

    def needs_run(self) -> bool:
        return len(self.runs) < (self.options.seeds if self.capture == "best" else self.options.repeats)

    def run(self) -> None:
        shutil.rmtree(self.checkpoint, ignore_errors=True)
        self.runs.append(run_measured(self.command(), self.log, self.options.threads))
        if self.capture == "best" or len(self.runs) == 1:
            self.evaluations.append(self.evaluate())
        last = f"{self.runs[-1]['cpu_seconds']:.1f} CPU s, KL {self.evaluations[-1]['kl_mean']:.4f}"
        print(f"{self.checkpoint.name}: {last}", file=sys.stderr, flush=True)

    def result(self) -> dict:
        row = {"format": self.scheme, "program": self.program, "capture": self.capture}
        for key in ("cpu_seconds", "wall_seconds", "peak_rss_mib"):
            row[key] = statistics.median(run[key] for run in self.runs)
        if self.program == "llm-compressor":
            row |= json_of_last_line(self.runs[-1])
        files = self.checkpoint.glob("*.safetensors")
        row["checkpoint_bytes"] = sum(file.stat().st_size for file in files)
        row |= self.evaluations[0]
        row |= {key: statistics.mean(result[key] for result in self.evaluations) for key in EVALUATED}
        return row | {"kl_of_seeds": [result["kl_mean"] for result in self.evaluations]}

    def evaluate(self) -> dict:
        options = self.options
        client = [options.client_python, TOP / "tests/client/client_check.py", self.checkpoint]
        samples = ["--ids", options.evaluation, "--num-samples", options.windows[1]]
        samples += ["--max-length", options.length, "--reference", options.model]
        log = self.log.with_suffix(".client.log")
        return json_of_last_line(run_measured([*client, *samples], log, options.threads))


def add_ratios(rows: list) -> None:
    """The KL of each row over that of llm-compressor's better plain GPTQ, and over its best, in the same format."""
    for row in rows:
        peers = [peer for peer in rows if peer["format"] == row["format"] and peer["program"] == "llm-compressor"]
        plain = [peer["kl_mean"] for peer in peers if peer["capture"] != "mse"]
        row["kl_over_plain"] = row["kl_mean"] / min(plain) if plain else float("nan")
        row["kl_over_best"] = row["kl_mean"] / min(peer["kl_mean"] for peer in peers) if peers else float("nan")


def measure(options, rows: list):
    """Adds a row for each program, capture and format, and yields after each format."""
    programs = {"llm-compressor": options.peer_captures, "curvq": options.curvq_captures}
    if options.only:
        programs.pop("curvq" if options.only == "peer" else "llm-compressor")
    for scheme in options.formats:
        cases = [
            Case(options, scheme, program, capture)
            for program, captures in programs.items()
            for capture in captures
            if capture != "mse" or scheme not in NOT_SEARCHED
        ]
        while any(case.needs_run() for case in cases):
            for case in cases:
                if case.needs_run():
                    case.run()
        new = [case.result() for case in cases]
        names = {(row["format"], row["program"], row["capture"]) for row in new}
        rows[:] = [row for row in rows if (row["format"], row["program"], row["capture"]) not in names] + new
        add_ratios(rows)
        for row in new:
            cells = [style.format(row[key]) for key, style in COLUMNS.items()]
            print("| " + " | ".join(cells) + " |", flush=True)
        yield


def machine() -> dict:
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {"cpu": names[0] if names else platform.processor(), "cores": os.cpu_count()}


def parse_options():
    def names(text: str) -> list[str]:
        return text.split(",")

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--data")
    parser.add_argument("--calibration")
    parser.add_argument("--evaluation")
    parser.add_argument("--windows", type=lambda text: [int(word) for word in text.split(",")], default=[32, 16])
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--curvq", default=TOP / "build/release/bin/curvq")
    parser.add_argument("--only", choices=("peer", "curvq"))
    parser.add_argument("--formats", type=names, default=list(CURVQ_SCHEMES))
    parser.add_argument("--peer-captures", type=names, default=["sequential", "float"])
    parser.add_argument("--curvq-captures", type=names, default=["sequential", "float"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--work", type=pathlib.Path, default=TOP / "build/side-by-side")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--client-python", default=TOP / ".deps/client/bin/python")
    parser.add_argument("--peer-python", default=TOP / ".deps/peer/bin/python")
    options = parser.parse_args()
    options.calibration = options.calibration or f"{options.data}:calib"
    options.evaluation = options.evaluation or f"{options.data}:eval"
    return options


def main() -> None:
    options = parse_options()
    options.model = str(pathlib.Path(options.model).resolve())
    options.work.mkdir(parents=True, exist_ok=True)
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|", flush=True)
    head = ["git", "-C", TOP, "rev-parse", "HEAD"]
    result = {
        "model": pathlib.Path(options.model).name,
        "data": [pathlib.Path(ids).name for ids in (options.calibration, options.evaluation)],
        "date": datetime.date.today().isoformat(),
        "commit": subprocess.run(head, capture_output=True, text=True).stdout.strip(),
        "machine": machine(),
        "threads": options.threads,
        "repeats": options.repeats,
        "seeds": options.seeds,
        "calibration": [options.windows[0], options.length],
        "evaluation": [options.windows[1], options.length],
        "rows": [],
    }
    out = options.out or TOP / f"bench/results/side-by-side-{result['model']}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    if options.only and out.exists():
        other = "curvq" if options.only == "peer" else "llm-compressor"
        result["rows"] = [row for row in json.loads(out.read_text())["rows"] if row["program"] == other]
    for _ in measure(options, result["rows"]):
        out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
