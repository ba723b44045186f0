#!/usr/bin/env python3
"""Bit plans beside uniform NVFP4, from the same calibration tokens.

For each budget (--bits) and seed: `curvq plan`, `curvq quantize --plan`, and the KL divergence from the
original on other tokens (`curvq eval`), predicted and measured, over that of uniform NVFP4 rounded in
the same way. Plans see calibration tokens only; what is written is the plan, or the uniform one where
the windows kept out like that better (`--guard held-out`).

    bench/plan_budgets.py MODEL --calibration IDS --evaluation IDS [--json OUT] [--rounding --preset best ...]

IDS is FILE.safetensors:NAME, token ids [windows, length].
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import sys
import tempfile

from plan_prediction import TOP, print_row, run_json

COLUMNS = ["budget", "bits", "predicted KL", "measured KL", "/ uniform NVFP4", "of seeds", "written"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--calibration", required=True)
    parser.add_argument("--evaluation", required=True)
    parser.add_argument("--num-calibration", type=int, default=64)
    parser.add_argument("--num-evaluation", type=int, default=64)
    parser.add_argument("--bits", type=float, nargs="+", default=[4.5, 4.75, 5.0])
    parser.add_argument("--seeds", type=int, default=3, help="draws of labels")
    parser.add_argument("--by", default="kronecker", choices=["kronecker", "trace", "hawq"])
    parser.add_argument("--draws", type=int, default=4, help="labels drawn for each token")
    parser.add_argument("--curvq", default=str(TOP / "build/release/bin/curvq"))
    parser.add_argument("--json", type=pathlib.Path, help="also write the rows here")
    parser.add_argument("--rounding", nargs=argparse.REMAINDER, default=[], help="options of rounding, last")
    args = parser.parse_args()

    calibration = ["--calibration", args.calibration, "--num-samples", args.num_calibration, "--on-indivisible", "keep"]

    def measure(out: pathlib.Path, *scheme, seed: int) -> float:
        run_json(args.curvq, "quantize", args.model, "--out", out, "--overwrite", "--guard", "none", "--seed", seed, *scheme,
                 *args.rounding)
        words = ("--reference", args.model, "--data", args.evaluation, "--num-samples", args.num_evaluation)
        return run_json(args.curvq, "eval", out, *words)["kl_mean"]

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        file, out = pathlib.Path(folder, "plan.json"), pathlib.Path(folder, "quantized")
        uniform = [measure(out, *calibration, "--scheme", "nvfp4", seed=seed) for seed in range(args.seeds)]
        print_row(COLUMNS)
        print_row(["---"] * len(COLUMNS))
        print_row(["uniform NVFP4", "", "", f"{statistics.mean(uniform):.5f}", "1", "", ""])
        for bits in args.bits:
            plans, measured = [], []
            for seed in range(args.seeds):
                plans.append(run_json(args.curvq, "plan", args.model, "--bits", bits, "--by", args.by, "--label-draws", args.draws,
                                      *calibration, "--out", file, "--overwrite", "--seed", seed, *args.rounding))
                measured.append(measure(out, *calibration[:4], "--plan", file, seed=seed))
            ratios = [kl / base for kl, base in zip(measured, uniform)]
            rows.append({
                "budget": bits,
                "bits": [plan["plan"]["bits"] for plan in plans],
                "predicted_kl": [plan["plan"]["predicted_kl"] for plan in plans],
                "measured_kl": measured,
                "uniform_kl": uniform,
                "ratio": statistics.mean(measured) / statistics.mean(uniform),
                "written": [plan["plan"]["name"] for plan in plans],
                "compared": [plan["compared"] for plan in plans],
            })
            print_row([str(bits), f"{statistics.mean(rows[-1]['bits']):.3f}", f"{statistics.mean(rows[-1]['predicted_kl']):.5f}",
                       f"{statistics.mean(measured):.5f}", f"{rows[-1]['ratio']:.3f}", ", ".join(f"{ratio:.3f}" for ratio in ratios),
                       ", ".join(sorted(set(rows[-1]["written"])))])
    if args.json:
        document = {"model": args.model.name, "machine": platform.machine(), "cores": os.cpu_count(), "rounding": args.rounding,
                    "by": args.by, "seeds": args.seeds, "rows": rows}
        args.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
