#!/usr/bin/env python3
"""Peak memory of `curvq hessian` as --dry-run predicts it, beside what the operating system measures.

    bench/hessian_memory.py SmolLM2-135M --data tokens.safetensors:eval --max-length 129 --samples 1,4

prints a row a case and writes them as JSON to bench/results. A ratio of 1 is a perfect prediction.
"""

import argparse
import datetime
import json
import os
import pathlib
import subprocess

from side_by_side import machine

TOP = pathlib.Path(__file__).resolve().parent.parent
OPERATORS = ("hessian", "ggn", "fisher")


def predicted(command) -> dict:
    run = subprocess.run([*command, "--dry-run", "--json"], capture_output=True, text=True, check=True)
    return json.loads(run.stdout)["results"]["memory"]


def measured(command) -> int:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} failed with status {process.returncode}")
    return usage.ru_maxrss * 1024


def cases(options):
    for samples in options.samples:
        for operator in OPERATORS:
            for checkpoint in (False, True):
                yield samples, operator, checkpoint
    for what in options.statistics:
        yield options.samples[0], what, False


def command_of(options, samples, operator, checkpoint):
    command = [options.curvq, "hessian", options.model, "--data", options.data, "--num-samples", str(samples), "--threads", "1"]
    if options.max_length:
        command += ["--max-length", str(options.max_length)]
    if operator not in OPERATORS:  # a statistic of the Hessian
        return [*command, "--what", operator]
    command += ["--what", "trace", "--probes", "2", "--operator", operator]
    return [*command, "--checkpoint"] if checkpoint else command


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", required=True)
    parser.add_argument("--max-length", type=int)
    parser.add_argument("--samples", type=lambda text: [int(n) for n in text.split(",")], default=[1, 4])
    parser.add_argument("--statistics", type=lambda text: text.split(","), default=["eigen", "density", "diagonal", "kfac"],
                        help="of the Hessian, beside products; eigen and density keep many vectors")
    parser.add_argument("--curvq", default=TOP / "build/release/bin/curvq")
    parser.add_argument("--out", type=pathlib.Path)
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    name = pathlib.Path(options.model).resolve().name
    rows = []
    print("| samples | operator | blocks again | predicted MiB | measured MiB | ratio |\n" + "|---" * 6 + "|", flush=True)
    for samples, operator, checkpoint in cases(options):
        command = command_of(options, samples, operator, checkpoint)
        memory, peak = predicted(command), measured(command)
        row = {"samples": samples, "operator": operator, "checkpoint": checkpoint, "measured_bytes": peak, **memory}
        row["ratio"] = memory["total_bytes"] / peak
        rows.append(row)
        cells = [samples, operator, "yes" if checkpoint else "", memory["total_bytes"] >> 20, peak >> 20, f"{row['ratio']:.3f}"]
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    head = subprocess.run(["git", "-C", TOP, "rev-parse", "HEAD"], capture_output=True, text=True)
    result = {
        "model": name,
        "date": datetime.date.today().isoformat(),
        "commit": head.stdout.strip(),
        "machine": machine(),
        "max_length": options.max_length,
        "rows": rows,
    }
    out = options.out or TOP / f"bench/results/hessian-memory-{name}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
