"""Every way of choosing codes and scales on one set of layer problems, the peers' errors beside them.

    python3 bench/rounding.py [--curvq build/release/bin/curvq] [--scheme nvfp4 ...] [--layers FOLDER] [--json F]

For each scheme a table: E = tr((W-Q) H (W-Q)^T) / tr(W H W^T) over that of llm-compressor's plain GPTQ with
activation order (tests/data/layers/peer-errors.json), by layer and as geometric mean; CPU seconds of all layers;
and, for what GPTQ leaves, the bound of its nearest planes. FOLDER may hold further layers as layers-*.safetensors (NAME.W, NAME.H or
its lower triangle NAME.H_tril) with peer-errors-*.json. Needs numpy, safetensors and, for bfloat16 weights, ml_dtypes.
"""

import argparse
import json
import pathlib
import resource
import subprocess
import tempfile

import numpy
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
LAYERS = ROOT / "tests" / "data" / "layers"
SCHEMES = {
    "nvfp4": (["--scheme", "nvfp4"], "gptq-static-nvfp4"),
    "mxfp4": (["--scheme", "mxfp4"], "gptq-static-mxfp4"),
    "int4-g64": (["--scheme", "int4", "--group-size", "64"], "gptq-static-int4-g64"),
    "int4-g32": (["--scheme", "int4", "--group-size", "32"], "gptq-static-int4-g32"),
}
SEARCH = ["--scale-search", "hessian"]
WAYS = {
    "rtn": ["--method", "rtn"],
    "obd": ["--method", "obd"],
    "gptq": [],
    "obs": ["--method", "obs"],
    "obs, Sherman-Morrison": ["--method", "obs", "--inverse", "sherman-morrison"],
    "gptq, K = 16": ["--candidates", "16"],
    "gptq, K = 64": ["--candidates", "64"],
    "gptq, K = 256": ["--candidates", "256"],
    "scale search": SEARCH,
    "obs, scale search": ["--method", "obs", *SEARCH],
    "scale search, 2 sweeps": [*SEARCH, "--sweeps", "2"],
    "scale search, 5 sweeps": [*SEARCH, "--sweeps", "5"],
    "the same, K = 16": [*SEARCH, "--sweeps", "5", "--candidates", "16"],
    "the same, K = 64": [*SEARCH, "--sweeps", "5", "--candidates", "64"],
    "the same, K = 256": [*SEARCH, "--sweeps", "5", "--candidates", "256"],
}


def tests_layers():
    """{name: (weight, Hessian, {peer: E})} of tests/data/layers."""
    weights, hessians = load_file(LAYERS / "weights.safetensors"), load_file(LAYERS / "stats.safetensors")
    peers = json.loads((LAYERS / "peer-errors.json").read_text())
    return {name: (weights[f"{name}.weight"], hessians[f"{name}.hessian"], peers[name]) for name in peers}


def layers_of(folder):
    """The same of a folder with layers-*.safetensors; layers that the peer failed on are left out."""
    import ml_dtypes  # noqa: F401  gives numpy bfloat16

    result = {}
    for file in sorted(folder.glob("layers-*.safetensors")):
        tensors = load_file(file)
        peers = json.loads((folder / file.name.replace("layers-", "peer-errors-").replace(".safetensors", ".json")).read_text())
        for name, errors in peers["layers"].items():
            errors = {peer: error for peer, error in errors.items() if isinstance(error, dict)}
            if any("E" not in error for error in errors.values()):
                continue
            hessian = tensors.get(f"{name}.H")
            if hessian is None:
                lower = tensors[f"{name}.H_tril"]
                size = int((2 * len(lower)) ** 0.5)
                hessian = numpy.zeros((size, size), numpy.float32)
                hessian[numpy.tril_indices(size)] = lower
                hessian += numpy.tril(hessian, -1).T
            result[name] = (tensors[f"{name}.W"].astype(numpy.float32), hessian, {peer: error["E"] for peer, error in errors.items()})
    return result


def inputs_of(hessian):
    """As many inputs as there are features whose 2/N sum x x^T is this Hessian."""
    values, vectors = numpy.linalg.eigh(hessian.astype(numpy.float64))
    root = (vectors * numpy.sqrt(numpy.maximum(values, 0))).T
    return numpy.ascontiguousarray(root * numpy.sqrt(len(values) / 2), dtype=numpy.float32)  # save_file() asks for it


def quantize(curvq, weights, stats, out, options):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [curvq, "quantize", weights, "--stats", stats, "--out", out, "--overwrite",
               "--threads", "1", "-q", "--json", *options]
    result = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(result.stdout)["results"]["layers"], seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curvq", default=ROOT / "build" / "release" / "bin" / "curvq")
    parser.add_argument("--scheme", nargs="*", default=list(SCHEMES), choices=list(SCHEMES))
    parser.add_argument("--way", nargs="*", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--layers", type=pathlib.Path, help="further layers; without it, those of tests/data/layers alone")
    parser.add_argument("--json", help="where the figures go too")
    arguments = parser.parse_args()
    problems = tests_layers()
    if arguments.layers:
        known = [weight for weight, _, _ in problems.values()]
        problems |= {name: layer for name, layer in layers_of(arguments.layers).items()
                     if not any(numpy.array_equal(layer[0], weight) for weight in known)}
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        stats, weights = pathlib.Path(temporary) / "stats.safetensors", pathlib.Path(temporary) / "weights.safetensors"
        peers = {name: errors for name, (_, _, errors) in problems.items()}
        hessians = {f"{name}.hessian": hessian for name, (_, hessian, _) in problems.items()}
        save_file({f"{name}.weight": weight for name, (weight, _, _) in problems.items()}, weights)
        inputs = {name.replace(".hessian", ".inputs"): inputs_of(h) for name, h in hessians.items()}
        save_file({**hessians, **inputs}, stats)
        for scheme in arguments.scheme:
            options, peer = SCHEMES[scheme]
            print(f"\n{scheme}: E over llm-compressor's plain act-order GPTQ; bound: that of the nearest planes")
            print(f"{'':26}{'mean':>7}" + "".join(f"{name:>22}" for name in sorted(peers)) + f"{'bound':>8}{'CPU s':>8}")
            for way in arguments.way:
                layers, seconds = quantize(arguments.curvq, weights, stats, pathlib.Path(temporary) / "out.safetensors",
                                           options + WAYS[way])
                errors = {layer["name"]: layer["relative_error"] for layer in layers}
                ratios = {name: errors[name] / peers[name][peer] for name in sorted(peers)}
                mean = float(numpy.exp(numpy.mean(numpy.log(list(ratios.values())))))
                bounds = [layer["nearest_plane_bound"] / peers[layer["name"]][peer]
                          for layer in layers if "nearest_plane_bound" in layer]
                bound = float(numpy.exp(numpy.mean(numpy.log(bounds)))) if bounds else None
                print(f"{way:26}{mean:7.3f}" + "".join(f"{ratio:22.3f}" for ratio in ratios.values()) +
                      (f"{bound:8.1f}" if bound else f"{'':8}") + f"{seconds:8.2f}", flush=True)
                results.append({"scheme": scheme, "way": way, "mean_ratio": mean, "ratios": ratios, "errors": errors,
                                "bound_ratio": bound, "cpu_seconds": seconds})
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
