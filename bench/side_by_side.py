"""Quantizes one model with llm-compressor and with curvq on the same token ids, and compares them.

    side_by_side.py MODEL --data FILE.safetensors [--curvq BINARY] [--only peer|curvq]
        [--formats nvfp4,mxfp4,int4-g64] [--peer-captures sequential,float,mse]
        [--curvq-captures sequential,float,best] [--threads N] [--repeats N] [--work DIR]
        [--out FILE.json]

FILE holds token ids `calib` and `eval`, [windows, length]: the first 32 windows calibrate, the
first 16 evaluate. Each run, from start to written checkpoint, is a child process of its own, and
the two programs take turns; its processor time is user + system, its memory the largest resident
set. Then transformers loads the checkpoints (tests/client/client_check.py) and computes
perplexity, KL(original || quantized) and top-1 agreement in float32. Medians over the repeats.
The capture `best` is curvq's --preset best. Results are written after every row.

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
NUM_CALIBRATION, NUM_EVALUATION, LENGTH = 32, 16, 512
CURVQ_SCHEMES = {
    "nvfp4": ["--scheme", "nvfp4"],
    "mxfp4": ["--scheme", "mxfp4"],
    "int4-g64": ["--scheme", "int4", "--group-size", "64"],
}
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

    def command(self) -> list:
        samples = ["--calibration", f"{self.options.data}:calib", "--num-samples", NUM_CALIBRATION]
        best = self.capture == "best"
        samples += ["--max-length", LENGTH, "--capture", "sequential" if best else self.capture]
        if self.program == "llm-compressor":
            script = TOP / "bench/quantize_llm_compressor.py"
            start = [self.options.peer_python, script, self.options.model, self.checkpoint]
            return [*start, "--scheme", self.scheme, *samples]
        start = [self.options.curvq, "quantize", self.options.model, "--out", self.checkpoint]
        rounding = [*CURVQ_SCHEMES[self.scheme], "--method", "gptq", "--on-indivisible", "keep"]
        rounding += ["--preset", "best"] if best else []
        return [*start, *rounding, *samples, "--threads", self.options.threads]

    def run(self) -> None:
        shutil.rmtree(self.checkpoint, ignore_errors=True)
        self.runs.append(run_measured(self.command(), self.log, self.options.threads))
        seconds = self.runs[-1]["cpu_seconds"]
        print(f"{self.checkpoint.name}: {seconds:.1f} CPU s", file=sys.stderr, flush=True)

    def result(self) -> dict:
        row = {"format": self.scheme, "program": self.program, "capture": self.capture}
        for key in ("cpu_seconds", "wall_seconds", "peak_rss_mib"):
            row[key] = statistics.median(run[key] for run in self.runs)
        if self.program == "llm-compressor":
            row |= json_of_last_line(self.runs[-1])
        files = self.checkpoint.glob("*.safetensors")
        row["checkpoint_bytes"] = sum(file.stat().st_size for file in files)
        return row | self.evaluate()

    def evaluate(self) -> dict:
        client = [self.options.client_python, TOP / "tests/client/client_check.py", self.checkpoint]
        samples = ["--ids", f"{self.options.data}:eval", "--num-samples", NUM_EVALUATION]
        samples += ["--max-length", LENGTH, "--reference", self.options.model]
        log = self.log.with_suffix(".client.log")
        return json_of_last_line(run_measured([*client, *samples], log, self.options.threads))


def measure(options):
    """Yields a row for each program, capture and format."""
    programs = {"llm-compressor": options.peer_captures, "curvq": options.curvq_captures}
    if options.only:
        programs.pop("curvq" if options.only == "peer" else "llm-compressor")
    for scheme in options.formats:
        cases = [
            Case(options, scheme, program, capture)
            for program, captures in programs.items()
            for capture in captures
        ]
        for _ in range(options.repeats):
            for case in cases:
                case.run()
        for case in cases:
            row = case.result()
            cells = [style.format(row[key]) for key, style in COLUMNS.items()]
            print("| " + " | ".join(cells) + " |", flush=True)
            yield row


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
    parser.add_argument("--data", required=True)
    parser.add_argument("--curvq", default=TOP / "build/release/bin/curvq")
    parser.add_argument("--only", choices=("peer", "curvq"))
    parser.add_argument("--formats", type=names, default=list(CURVQ_SCHEMES))
    parser.add_argument("--peer-captures", type=names, default=["sequential", "float"])
    parser.add_argument("--curvq-captures", type=names, default=["sequential", "float"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--work", type=pathlib.Path, default=TOP / "build/side-by-side")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--client-python", default=TOP / ".deps/client/bin/python")
    parser.add_argument("--peer-python", default=TOP / ".deps/peer/bin/python")
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    options.model = str(pathlib.Path(options.model).resolve())
    options.work.mkdir(parents=True, exist_ok=True)
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|", flush=True)
    head = ["git", "-C", TOP, "rev-parse", "HEAD"]
    result = {
        "model": pathlib.Path(options.model).name,
        "data": pathlib.Path(options.data).name,
        "date": datetime.date.today().isoformat(),
        "commit": subprocess.run(head, capture_output=True, text=True).stdout.strip(),
        "machine": machine(),
        "threads": options.threads,
        "repeats": options.repeats,
        "calibration": [NUM_CALIBRATION, LENGTH],
        "evaluation": [NUM_EVALUATION, LENGTH],
        "rows": [],
    }
    out = options.out or TOP / f"bench/results/side-by-side-{result['model']}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    for row in measure(options):
        result["rows"].append(row)
        out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
