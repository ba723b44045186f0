"""Loads a checkpoint with transformers and compressed-tensors on the CPU and prints as JSON what they compute.

    client_check.py DIR --ids FILE.safetensors[:NAME] [--mode dequantize|lazy|plain] [--dtype float32|bfloat16]
                    [--num-samples N] [--max-length L] [--reference DIR]

The ids [windows, length] are independent windows; NAME is `input_ids` by default; the first N windows are used, each
cut to its first L ids. Modes: `dequantize` decompresses the weights while loading, `lazy` keeps them compressed until
the first forward pass (FP4 then runs in bfloat16 only), `plain` is for a checkpoint that is not quantized; by default
config.json decides between the first and the last. `perplexity` is over every window's next-token terms. With a reference (always in float32) `kl_mean` is
KL(reference || model) and `top1_agreement` the share of equal argmaxes, both over all positions.
Exit status 1 if a tensor is missing, unexpected or of another shape, or a logit is not finite.
"""

import argparse
import importlib.metadata
import json
import math
import os
import pathlib
import sys
import warnings

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TQDM_DISABLE": "1"}

warnings.filterwarnings("ignore", message="You passed `quantization_config`")

import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM
from transformers.utils.quantization_config import CompressedTensorsConfig

PACKAGES = ("torch", "transformers", "compressed-tensors", "safetensors")


def is_quantized(directory: pathlib.Path) -> bool:
    return "quantization_config" in json.loads((directory / "config.json").read_text())


def read_ids(source: str) -> torch.Tensor:
    path, _, name = source.partition(":")
    with safe_open(path, "pt") as file:
        ids = file.get_tensor(name or "input_ids").long()
    if ids.ndim != 2 or ids.shape[1] < 2:
        sys.exit(f"{source}: token ids have the shape {list(ids.shape)}, want [windows, length >= 2]")
    return ids


def load_model(directory: pathlib.Path, mode: str | None, dtype: torch.dtype) -> torch.nn.Module:
    quantized = is_quantized(directory)
    mode = mode or ("dequantize" if quantized else "plain")
    if quantized != (mode != "plain"):
        sys.exit(f"{directory}: {'has a' if quantized else 'has no'} quantization_config, so mode {mode} cannot be")
    extra = {"quantization_config": CompressedTensorsConfig(dequantize=True)} if mode == "dequantize" else {}
    model, info = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, output_loading_info=True, **extra)
    if any(info.values()):
        sys.exit(f"{directory}: " + "; ".join(f"{what}: {found}" for what, found in info.items() if found))
    return model.eval()


@torch.no_grad()
def logits_of(model: torch.nn.Module, window: torch.Tensor) -> torch.Tensor:
    logits = model(input_ids=window[None], use_cache=False).logits[0].double()
    if not torch.isfinite(logits).all():
        sys.exit(f"{model.name_or_path}: {int((~torch.isfinite(logits)).sum())} of {logits.numel()} logits are not finite")
    return logits.log_softmax(-1)


def evaluate(model: torch.nn.Module, reference: torch.nn.Module | None, ids: torch.Tensor) -> dict:
    nll = kl = agreement = 0.0
    for window in ids:
        log_q = logits_of(model, window)
        nll -= log_q[:-1].gather(1, window[1:, None]).sum().item()
        if reference is not None:
            log_p = logits_of(reference, window)
            kl += (log_p.exp() * (log_p - log_q)).sum().item()
            agreement += (log_p.argmax(-1) == log_q.argmax(-1)).sum().item()
    tokens = ids.shape[0] * (ids.shape[1] - 1)
    result = {"perplexity": math.exp(nll / tokens), "nll": nll / tokens, "tokens": tokens}
    if reference is not None:
        result |= {"kl_mean": kl / ids.numel(), "top1_agreement": agreement / ids.numel(), "positions": ids.numel()}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--ids", required=True)
    parser.add_argument("--mode", choices=("dequantize", "lazy", "plain"))
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--num-samples", type=int)
    parser.add_argument("--max-length", type=int)
    parser.add_argument("--reference", type=pathlib.Path)
    options = parser.parse_args()

    ids = read_ids(options.ids)[: options.num_samples, : options.max_length]
    model = load_model(options.directory, options.mode, getattr(torch, options.dtype))
    reference = load_model(options.reference, None, torch.float32) if options.reference else None
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    print(json.dumps({"versions": versions} | evaluate(model, reference, ids)))


if __name__ == "__main__":
    main()
