#!/usr/bin/env python3
"""Prunes a model with `curvq prune` by several methods and prints how far each goes from the original.

For every pattern (--patterns) and method (--methods) a table row: the geometric mean over the layers of
the relative layer error on the calibration tokens, the KL divergence from the original model, perplexity
and top-1 agreement on other tokens (`curvq eval`), and the processor seconds of pruning. `obs` is
SparseGPT's algorithm; give peers' figures beside it by pruning the same token ids with them.

    bench/prune_side_by_side.py MODEL --data TOKENS.safetensors [--json OUT]

TOKENS.safetensors holds token ids `calib` and `eval`, [windows, 512].
"""

import argparse
import json
import math
import os
import pathlib
import platform
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parent.parent
METHODS = {
    "magnitude": ["--method", "magnitude"],
    "wanda": ["--method", "wanda"],
    "obd": ["--method", "obd"],
    "obs": ["--method", "obs"],
    "obs, original inputs": ["--method", "obs", "--capture", "float"],
    "obs, sweeps": ["--method", "obs", "--sweeps", "3"],
    "obs, token weights": ["--method", "obs", "--token-weights", "gradient"],
    "best": ["--preset", "best"],
    "best, global": ["--preset", "best", "--allocation", "global"],
}
COLUMNS = ["pattern", "method", "layer error", "KL", "KL / obs", "perplexity", "top-1", "CPU s"]


def run_json(words: list) -> tuple[dict, float]:
    """The JSON that a command prints, and its processor seconds."""
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True)
        output = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            errors.seek(0)
            sys.exit(f"{' '.join(words)}: exit status {child.returncode}\n{errors.read()}")
    return json.loads(output), usage.ru_utime + usage.ru_stime


def measure(args: argparse.Namespace, pattern: str, method: str, out: str) -> dict:
    sparsity = ["--pattern", pattern] if ":" in pattern else ["--sparsity", pattern]
    calibration = ["--calibration", f"{args.data}:calib", "--num-samples", str(args.num_calibration)]
    seconds, results, kls = [], [], []
    for seed in range(args.seeds if method.startswith("best") or "weights" in method else 1):
        words = [args.curvq, "prune", args.model, "--out", out, "--overwrite", *sparsity, *METHODS[method],
                 *calibration, "--threads", str(args.threads), "--seed", str(seed), "--json"]
        report, cpu = run_json(words)
        words = [args.curvq, "eval", out, "--reference", args.model, "--data", f"{args.data}:eval",
                 "--num-samples", str(args.num_evaluation), "--threads", str(args.threads), "--json"]
        seconds.append(cpu)
        results.append(run_json(words)[0]["results"])
        kls.append(results[-1]["kl_mean"])
    errors = [layer["relative_error"] for layer in report["results"]["layers"]]
    return {
        "pattern": pattern,
        "method": method,
        "layer_error": math.exp(sum(map(math.log, errors)) / len(errors)),
        "kl_mean": sum(kls) / len(kls),
        "kl_of_seeds": kls,
        "perplexity": sum(r["perplexity"] for r in results) / len(results),
        "top1_agreement": sum(r["top1_agreement"] for r in results) / len(results),
        "cpu_seconds": min(seconds),
        "sparsity": report["results"]["zero_weights"] / report["results"]["weights"],
    }


def print_row(cells: list) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", required=True, help="token ids `calib` and `eval`")
    parser.add_argument("--patterns", nargs="+", default=["0.5", "2:4"])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--num-calibration", type=int, default=32)
    parser.add_argument("--num-evaluation", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3, help="draws of labels, where a method draws any")
    parser.add_argument("--curvq", default=str(TOP / "build/release/bin/curvq"))
    parser.add_argument("--json", type=pathlib.Path, help="also write the rows here")
    args = parser.parse_args()

    print_row(COLUMNS)
    print_row(["---"] * len(COLUMNS))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for pattern in args.patterns:
            plain = math.nan
            for method in args.methods:
                if ":" in pattern and "global" in method:
                    continue
                row = measure(args, pattern, method, f"{folder}/pruned")
                if method == "obs":
                    plain = row["kl_mean"]
                rows.append(row)
                print_row([pattern, method, f"{row['layer_error']:.4g}", f"{row['kl_mean']:.4f}",
                           f"{row['kl_mean'] / plain:.2f}", f"{row['perplexity']:.2f}",
                           f"{row['top1_agreement']:.3f}", f"{row['cpu_seconds']:.1f}"])
    if args.json:
        machine = {"machine": platform.machine(), "cores": os.cpu_count()}
        args.json.write_text(json.dumps({"model": pathlib.Path(args.model).name, **machine, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
