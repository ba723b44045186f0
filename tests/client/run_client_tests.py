"""Lets the real clients load what curvq writes, and compares what both compute from it.

    .deps/client/bin/python tests/client/run_client_tests.py [--curvq BINARY] [--model DIR]
        [--calibration FILE:NAME] [--evaluation FILE:NAME] [--num-samples N]
        [--schemes NAME,...] [--keep DIR]

For each scheme and method, and then for small models of many families: `curvq quantize`, `curvq eval`, then the same checkpoint in
transformers with compressed-tensors, see client_check.py. Prints a line a case and how many
passed; exit status 1 if one failed.
"""

import argparse
import functools
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import client_check
import torch

TOP = pathlib.Path(__file__).resolve().parents[2]
STORIES = TOP / "tests/data/models/stories260K"
TOKENS = TOP / "tests/data/stories260K-tokens"
SCHEMES = {
    "nvfp4": ["--scheme", "nvfp4", "--on-indivisible", "keep"],
    "mxfp4": ["--scheme", "mxfp4", "--on-indivisible", "keep"],
    "int4-g64": ["--scheme", "int4", "--group-size", "64", "--on-indivisible", "keep"],
    "int4-g64-or-channel": [
        "--scheme",
        "int4",
        "--group-size",
        "64",
        "--on-indivisible",
        "channel",
    ],
    "int4-g32-asymmetric": [
        "--scheme",
        "int4",
        "--group-size",
        "32",
        "--asymmetric",
        "--on-indivisible",
        "keep",
    ],
    "int4-channel": ["--scheme", "int4", "--group-size", "0"],
    "int8": ["--scheme", "int8"],
    "fp8": ["--scheme", "fp8"],
    "mixed-plan": [],  # by a plan of formats of every kind
    "nvfp4-w4a4": ["--scheme", "nvfp4", "--on-indivisible", "keep", "--input-format", "nvfp4"],
    "mxfp4-w4a4": ["--scheme", "mxfp4", "--on-indivisible", "keep", "--input-format", "mxfp4"],
    "fp8-w8a8": ["--scheme", "fp8", "--input-format", "fp8"],
    "fp8-w8a8-static": ["--scheme", "fp8", "--input-format", "fp8-tensor"],
    "int8-w8a8": ["--scheme", "int8", "--input-format", "int8"],
    "int4-g64-a8": [
        "--scheme",
        "int4",
        "--group-size",
        "64",
        "--on-indivisible",
        "keep",
        "--input-format",
        "fp8",
    ],
}
PLAN = ["--bits", "5.5", "--on-indivisible", "keep", "--guard", "none"]
METHODS = ("rtn", "gptq")
# Not gpt2, whose Conv1D compressed-tensors does not know, nor experts, which transformers keeps in
# one tensor.
FAMILIES = TOP / "tests/data/families"
CLIENT_FAMILIES = (
    "mistral qwen2 qwen3 olmo2 granite phi3 gemma gemma2 gemma3_text opt gpt_neox"
).split()
CLIENTS = (("dequantize", "float32"), ("dequantize", "bfloat16"), ("lazy", "bfloat16"))
# transformers 5.24 dequantizes at load by the first config group's scheme, whatever the layer's is.
MIXED_CLIENTS = (("lazy", "float32"), ("lazy", "bfloat16"))

# Both sides compute with the same weights in float32, unless the client rounds them to bfloat16
# as it decompresses. All in bfloat16, activations too, moves a token's loss by some percent, at
# random: that bound is for thousands of tokens.
FLOAT32_TOLERANCE, NVFP4_TOLERANCE, BFLOAT16_TOLERANCE = 1e-4, 2e-3, 5e-3
# KL is a small difference of what perplexity measures, and in bfloat16 the client's own activations
# dominate it.
KL_TOLERANCE = {FLOAT32_TOLERANCE: 1e-3, NVFP4_TOLERANCE: 2e-2, BFLOAT16_TOLERANCE: float("inf")}


# Both sides round inputs of layers, in float32. One input on the other side of a tie changes all
# that follows by as much as rounding does, so that the two end as independent roundings of one
# model: a token's loss then has the variance 2 KL on either side, and the means of n tokens differ by
# sqrt(4 KL / n), of which four are allowed. KL itself varies by about twice its size from token to
# token: four times 2 sqrt(2 / n) of the 16,000 that are evaluated is 0.1.
ROUNDED_CLIENTS = (("rounded", "float32"),)
ROUNDED_KL_TOLERANCE = 0.1


def run_curvq(options, *arguments) -> dict:
    command = [str(word) for word in (options.curvq, *arguments, "--json", "--progress", "none")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise client_check.CheckError(
            f"{' '.join(command)}: status {done.returncode}: {done.stderr.strip()[-300:]}"
        )
    return json.loads(done.stdout)["results"]


def curvq_eval(options, directory: pathlib.Path) -> dict:
    samples = ["--data", options.evaluation, "--num-samples", options.num_samples]
    return run_curvq(options, "eval", directory, *samples, "--reference", options.model)


def rounds_inputs(scheme: str) -> bool:
    return "--input-format" in SCHEMES.get(scheme, ())


def tolerances(scheme: str, dtype: str, ours: dict) -> tuple[float, float]:
    """Of the perplexity and of KL."""
    if rounds_inputs(scheme):
        return 4 * math.sqrt(4 * ours["kl_mean"] / ours["tokens"]), ROUNDED_KL_TOLERANCE
    allowed = NVFP4_TOLERANCE if scheme == "nvfp4" else FLOAT32_TOLERANCE
    if dtype == "bfloat16":
        allowed = BFLOAT16_TOLERANCE
    return allowed, KL_TOLERANCE[allowed]


def compare(ours: dict, theirs: dict, allowed: tuple[float, float]) -> None:
    for key, bound in zip(("perplexity", "kl_mean"), allowed):
        if not abs(ours[key] - theirs[key]) <= bound * theirs[key] + 1e-6:
            raise client_check.CheckError(
                f"{key}: curvq {ours[key]:.6g}, client {theirs[key]:.6g}, allowed {bound:.2%} apart"
            )
    if ours["tokens"] != theirs["tokens"]:
        raise client_check.CheckError(f"tokens: curvq {ours['tokens']}, client {theirs['tokens']}")


def describe(ours: dict, theirs: dict) -> str:
    return f"perplexity {ours['perplexity']:.4f}, client {theirs['perplexity']:.4f}"


class Report:
    passed = failed = 0

    def case(self, name: str, check) -> None:
        try:
            print(f"ok      {name}: {check()}", flush=True)
            self.passed += 1
        except Exception as error:  # whatever a client trips over is a failure of this case alone
            print(f"FAILED  {name}: {type(error).__name__}: {error}", flush=True)
            self.failed += 1


def check_client(
    ids, reference, scheme: str, directory: pathlib.Path, mode: str, dtype: str, ours: dict
) -> str:
    model = client_check.load_model(directory, mode, getattr(torch, dtype))
    theirs = client_check.evaluate(model, reference, ids)
    compare(ours, theirs, tolerances(scheme, dtype, ours))
    return f"{describe(ours, theirs)}; KL {ours['kl_mean']:.4f}"


def check_mixed(directory: pathlib.Path) -> None:
    config = json.loads((directory / "config.json").read_text())["quantization_config"]
    formats = {group["format"] for group in config["config_groups"].values()}
    if config["format"] != "mixed-precision" or len(formats) < 2:
        raise client_check.CheckError(f"{config['format']} of {', '.join(sorted(formats))}")


def clients_of(scheme: str) -> tuple:
    if scheme == "mixed-plan":
        return MIXED_CLIENTS[1:]  # FP4 runs in bfloat16 only
    if rounds_inputs(scheme):
        return ROUNDED_CLIENTS
    return MIXED_CLIENTS if scheme.endswith("-or-channel") else CLIENTS


def run_scheme(
    options, ids, reference, scheme: str, method: str, work: pathlib.Path, report: Report
) -> None:
    directory = work / f"{scheme}-{method}"
    ours = {}

    def quantize() -> str:
        samples = ["--calibration", options.calibration, "--num-samples", options.num_samples]
        target = [options.model, "--out", directory, *SCHEMES[scheme], "--method", method]
        if scheme == "mixed-plan":
            plan = work / f"{method}.json"
            run_curvq(options, "plan", options.model, *PLAN, "--method", method, *samples, "--out", plan)
            target += ["--plan", plan]
        run_curvq(options, "quantize", *target, *samples)
        if scheme == "mixed-plan":
            check_mixed(directory)
        ours.update(curvq_eval(options, directory))
        return f"perplexity {ours['perplexity']:.4f}"

    report.case(f"{scheme} {method} curvq", quantize)
    if not ours:
        return
    for mode, dtype in clients_of(scheme):
        if mode == "lazy" and "asymmetric" in scheme:
            continue  # compressed-tensors loads zero points only as it dequantizes
        check = functools.partial(
            check_client, ids, reference, scheme, directory, mode, dtype, ours
        )
        report.case(f"{scheme} {method} {mode} {dtype}", check)


def check_family(options, family: str, work: pathlib.Path) -> str:
    model, directory = work / f"{family}-float32", work / family
    data = FAMILIES / family / "reference.safetensors"
    # Of bfloat16 weights the scales are bfloat16, and so are the client's products with them.
    run_curvq(options, "convert", FAMILIES / family, "--out", model, "--dtype", "float32")
    run_curvq(
        options, "quantize", model, "--out", directory, "--scheme", "int4", "--group-size", 16,
        "--calibration", data,
    )  # fmt: skip
    ours = run_curvq(options, "eval", directory, "--data", data, "--reference", model)
    reference = client_check.load_model(model, "plain", torch.float32)
    ids = client_check.read_ids(str(data))
    return check_client(ids, reference, "int4", directory, "dequantize", "float32", ours)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--curvq", type=pathlib.Path, default=TOP / "build/release/bin/curvq")
    parser.add_argument("--model", type=pathlib.Path, default=STORIES)
    parser.add_argument("--calibration", default=f"{TOKENS}/calibration.safetensors:input_ids")
    parser.add_argument("--evaluation", default=f"{TOKENS}/evaluation.safetensors:input_ids")
    parser.add_argument("--num-samples", type=int, default=32)
    parser.add_argument("--schemes", type=lambda text: text.split(","), default=list(SCHEMES))
    parser.add_argument("--keep", type=pathlib.Path, help="leave the checkpoints in this directory")
    options = parser.parse_args()

    ids = client_check.read_ids(options.evaluation)[: options.num_samples]
    reference = client_check.load_model(options.model, "plain", torch.float32)
    report = Report()

    def check_original() -> str:
        ours, theirs = curvq_eval(options, options.model), client_check.evaluate(
            reference, reference, ids
        )
        compare(ours, theirs, tolerances("original", "float32", ours))
        return describe(ours, theirs)

    report.case("original plain float32", check_original)
    with tempfile.TemporaryDirectory(prefix="curvq-client-") as temporary:
        work = options.keep or pathlib.Path(temporary)
        for scheme in options.schemes:
            for method in METHODS[1:] if rounds_inputs(scheme) else METHODS:
                run_scheme(options, ids, reference, scheme, method, work, report)
        for family in CLIENT_FAMILIES:
            check = functools.partial(check_family, options, family, work)
            report.case(f"{family} int4 gptq dequantize float32", check)
    print(f"{report.passed} passed, {report.failed} failed")
    sys.exit(report.failed > 0)


if __name__ == "__main__":
    main()
