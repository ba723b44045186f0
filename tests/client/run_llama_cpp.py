"""Lets llama.cpp run the GGUF files that curvq writes.

    .deps/client/bin/python tests/client/run_llama_cpp.py [--curvq BINARY] [--model DIR]
        [--calibration FILE:NAME] [--evaluation FILE:NAME] [--num-samples N] [--formats F16,NVFP4,...]

Perplexities over the same token ids must agree to half a percent (llama.cpp rounds the activations of 4-bit layers to 8
bits), in F16, where both compute from the same numbers, to a thousandth; the F16 file must give the tokens of a prompt and the
greedy text that `curvq generate` gives.
"""

import argparse
import functools
import json
import pathlib
import subprocess
import sys
import tempfile

import llama_cpp
from safetensors.numpy import load_file

TOP = pathlib.Path(__file__).resolve().parents[2]
STORIES = TOP / "tests/data/models/stories260K"
TOKENS = TOP / "tests/data/stories260K-tokens"
print = functools.partial(print, flush=True)
FORMATS = {
    "F16": [],
    "NVFP4": ["--scheme", "nvfp4"],
    "MXFP4": ["--scheme", "mxfp4"],
    "Q4_0": ["--scheme", "int4", "--group-size", "32"],
    "Q8_0": ["--scheme", "int8", "--group-size", "32"],
}
LARGEST_DIFFERENCE = {"F16": 1e-3}  # of the perplexity, relative; else:
OF_ROUNDED_ACTIVATIONS = 5e-3
PROMPTS = ["Once upon a time", "The little dog was"]
NEW_TOKENS = 40


def ids_of(source):
    path, _, name = source.partition(".safetensors:")
    return load_file(f"{path}.safetensors" if name else path)[name or "input_ids"]


def generates_the_same(curvq, file, model):
    for prompt in PROMPTS:
        ours = curvq("generate", file, "--prompt", prompt, "--max-new-tokens", NEW_TOKENS, "--ignore-eos")["text"]
        theirs = model.text(model.greedy(model.tokenize(prompt), NEW_TOKENS))
        if theirs.strip() != ours.removeprefix(prompt).strip():
            print(f"F16: after {prompt!r} llama.cpp writes {theirs!r}, curvq {ours!r}")
            return False
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curvq", default=TOP / "build/release/bin/curvq")
    parser.add_argument("--model", type=pathlib.Path, default=STORIES)
    parser.add_argument("--calibration", default=str(TOKENS / "calibration.safetensors"))
    parser.add_argument("--evaluation", default=str(TOKENS / "evaluation.safetensors"))
    parser.add_argument("--num-samples", type=int, default=16)
    parser.add_argument("--formats", type=lambda text: text.split(","), default=list(FORMATS))
    options = parser.parse_args()

    def curvq(*arguments):
        command = [str(part) for part in (options.curvq, *arguments, "--threads", 1, "--json", "-q")]
        run = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
        return json.loads(run.stdout)["results"]

    samples = ["--num-samples", options.num_samples]
    windows = ids_of(options.evaluation)[: options.num_samples]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        plain, quantized, file = (pathlib.Path(folder, name) for name in ("plain", "quantized", "model.gguf"))
        curvq("convert", options.model, "--out", plain, "--dtype", "float16")
        for name in options.formats:
            source = plain
            if FORMATS[name]:
                source = quantized
                curvq("quantize", plain, "--out", quantized, "--overwrite", "--on-indivisible", "keep", *FORMATS[name],
                      "--calibration", options.calibration, *samples)
            curvq("convert", source, "--out", file, "--overwrite", "--layout", "gguf")
            ours = curvq("eval", file, "--data", options.evaluation, *samples)["perplexity"]
            model = llama_cpp.Model(file, context=windows.shape[1])
            theirs = model.perplexity(windows)
            good = abs(theirs / ours - 1) <= LARGEST_DIFFERENCE.get(name, OF_ROUNDED_ACTIVATIONS)
            if name == "F16":
                good = generates_the_same(curvq, file, model) and good
            model.close()
            failed += not good
            print(f"{'ok    ' if good else 'FAILED'} {name:6} perplexity: curvq {ours:.5f}, llama.cpp {theirs:.5f} ({theirs / ours - 1:+.4%})")
    print(f"{len(options.formats) - failed} of {len(options.formats)} passed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
