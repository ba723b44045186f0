#!/usr/bin/env python3
"""How well `curvq plan` predicts what one quantized layer does to the model.

For each format and layer alone: the KL that the plan predicts by tr(G D A D^T) / 2 (and by trace x
error and HAWQ's rule) beside the KL that `curvq eval` measures on other tokens with only this layer
quantized. Prints a row a format and one for all: Spearman's rank correlation of predicted and
measured over the layers for each rule, and the median and range of predicted / measured.

    bench/plan_prediction.py MODEL --calibration IDS --evaluation IDS [--json OUT]

IDS is FILE.safetensors:NAME, token ids [windows, length].
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parent.parent
FORMATS = ["nvfp4", "mxfp4", "int4 group-size=32", "int4 group-size=64", "int8"]
RULES = {"kronecker": "predicted_kl", "trace": "trace_kl", "hawq": "hawq_kl"}


def run_json(*words) -> dict:
    done = subprocess.run([str(word) for word in (*words, "--json", "--progress", "none")], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: exit status {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)["results"]


def ranks(values: list) -> list:
    """Mean ranks of ties."""
    order = sorted(range(len(values)), key=values.__getitem__)
    result = [0.0] * len(values)
    begin = 0
    while begin < len(order):
        end = begin
        while end < len(order) and values[order[end]] == values[order[begin]]:
            end += 1
        for i in order[begin:end]:
            result[i] = (begin + end - 1) / 2
        begin = end
    return result


def spearman(x: list, y: list) -> float:
    return statistics.correlation(ranks(x), ranks(y)) if len(set(x)) > 1 and len(set(y)) > 1 else float("nan")


def row_of(name: str, cases: list) -> dict:
    measured = [case["measured_kl"] for case in cases]
    ratios = sorted(case["predicted_kl"] / case["measured_kl"] for case in cases)
    row = {"format": name, "layers": len(cases)}
    row |= {f"spearman_{rule}": spearman([case[key] for case in cases], measured) for rule, key in RULES.items()}
    return row | {"ratio_median": statistics.median(ratios), "ratio_min": ratios[0], "ratio_max": ratios[-1]}


def print_row(cells) -> None:
    print("| " + " | ".join(cell if isinstance(cell, str) else f"{cell:.3f}" for cell in cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--calibration", required=True)
    parser.add_argument("--evaluation", required=True)
    parser.add_argument("--num-calibration", type=int, default=64)
    parser.add_argument("--num-evaluation", type=int, default=24)
    parser.add_argument("--max-length", type=int, help="of the windows")
    parser.add_argument("--held-out", type=float, default=0.2, help="share of the calibration windows that predict")
    parser.add_argument("--draws", type=int, default=4, help="labels drawn for each token")
    parser.add_argument("--formats", nargs="+", default=FORMATS)
    parser.add_argument("--every", type=int, default=1, help="only each so manyth layer")
    parser.add_argument("--rounding", nargs=argparse.REMAINDER, default=["--method", "rtn"],
                        help="options of rounding, last (--method rtn)")
    parser.add_argument("--curvq", default=str(TOP / "build/release/bin/curvq"))
    parser.add_argument("--json", type=pathlib.Path, help="also write all cases here")
    args = parser.parse_args()

    length = ["--max-length", args.max_length] if args.max_length else []
    calibration = ["--calibration", args.calibration, *length]
    formats = [word for name in args.formats for word in ("--format", name)]
    plan = run_json(args.curvq, "plan", args.model, "--bits", 32, *formats, "--format", "keep", "--on-indivisible", "keep", *calibration,
                    "--num-samples", args.num_calibration, "--held-out", args.held_out, "--label-draws", args.draws, "--guard", "none",
                    *args.rounding)
    seen = args.num_calibration - max(1, round(args.held_out * args.num_calibration)) if args.held_out else args.num_calibration
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "one")
        for layer in plan["layers"][:: args.every]:
            for choice in layer["choices"]:
                if choice["scheme"] == "keep":
                    continue
                alone = ["--rule", "* = keep", "--rule", f"{layer['name']} = {choice['scheme']}"]
                rounded = run_json(args.curvq, "quantize", args.model, *alone, "--out", out, "--overwrite", *calibration, "--num-samples",
                                   seen, "--capture", "float", *args.rounding)
                measured = run_json(args.curvq, "eval", out, "--reference", args.model, "--data", args.evaluation, *length,
                                    "--num-samples", args.num_evaluation)
                cases.append({"layer": layer["name"], **choice, "relative_error_alone": rounded["layers"][0]["relative_error"],
                              "measured_kl": measured["kl_mean"], "measured_kl_stderr": measured["kl_stderr"]})
                print(f"{layer['name']} {choice['scheme']}: {choice['predicted_kl']:.3g}, measured {measured['kl_mean']:.3g}",
                      file=sys.stderr, flush=True)

    by_format = {}
    for case in cases:
        by_format.setdefault(case["scheme"], []).append(case)
    rows = [row_of(name, of_format) for name, of_format in by_format.items()] + [row_of("all", cases)]
    print_row(list(rows[0]))
    print_row(["---"] * len(rows[0]))
    for row in rows:
        print_row(row.values())
    if args.json:
        document = {"model": args.model.name, "machine": platform.machine(), "cores": os.cpu_count(), "rounding": args.rounding,
                    "factor_tokens": plan["factor_tokens"], "rows": rows, "cases": cases}
        args.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
