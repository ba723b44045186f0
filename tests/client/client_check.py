"""Loads a checkpoint with transformers and compressed-tensors on the CPU, prints what they compute.

    client_check.py DIR --ids FILE.safetensors[:NAME] [--num-samples N] [--max-length L]
                    [--mode dequantize|lazy|rounded|plain] [--dtype float32|bfloat16] [--reference DIR]

The ids [windows, length] are independent windows; NAME is `input_ids` by default; the first N
windows are used, each cut to its first L ids. Modes: `dequantize` decompresses the weights while
loading, `lazy` keeps them compressed until the first forward pass (FP4 then runs in bfloat16
only), `rounded` is `lazy` for the dtype of choice: weights are decompressed and cast behind the
loading (these two round inputs of layers where config.json says so, `dequantize` leaves them), and
`plain` is for a checkpoint that is not quantized; by default config.json decides between the first
and the last.

Prints one JSON object: `perplexity` is over every window's next-token terms; with a reference
(always in float32) `kl_mean` is KL(reference || model) and `top1_agreement` the share of equal
argmaxes, both over all positions. Exit status 1 if a tensor is missing, unexpected or of another
shape, or a logit is not finite.
"""

import argparse
import contextlib
import importlib.metadata
import io
import json
import math
import os
import pathlib
import sys

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TQDM_DISABLE": "1"}

import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM
from transformers.utils.quantization_config import CompressedTensorsConfig

PACKAGES = ("torch", "transformers", "compressed-tensors", "safetensors")


class CheckError(Exception):
    """The checkpoint is not what a client takes."""


def quiet() -> contextlib.AbstractContextManager:
    """Hides progress bars that nothing turns off; what matters is returned or raised."""
    return contextlib.redirect_stderr(io.StringIO())


def is_quantized(directory: pathlib.Path) -> bool:
    return "quantization_config" in json.loads((directory / "config.json").read_text())


def read_ids(source: str) -> torch.Tensor:
    path, _, name = source.partition(":")
    with safe_open(path, "pt") as file:
        ids = file.get_tensor(name or "input_ids").long()
    if ids.ndim != 2 or ids.shape[1] < 2:
        raise CheckError(
            f"{source}: token ids have the shape {list(ids.shape)}, want [windows, length >= 2]"
        )
    return ids


def load_model(directory: pathlib.Path, mode: str | None, dtype: torch.dtype) -> torch.nn.Module:
    quantized = is_quantized(directory)
    mode = mode or ("dequantize" if quantized else "plain")
    if quantized != (mode != "plain"):
        raise CheckError(
            f"{directory}: mode {mode} does not fit a checkpoint "
            f"{'with' if quantized else 'without'} quantization_config"
        )
    extra = (
        {"quantization_config": CompressedTensorsConfig(dequantize=True)}
        if mode == "dequantize"
        else {}
    )
    with quiet():  # eager: fused attention leaves gemma2's soft caps out
        model, info = AutoModelForCausalLM.from_pretrained(
            directory, dtype=dtype, output_loading_info=True, attn_implementation="eager", **extra
        )
    if any(info.values()):
        raise CheckError(
            f"{directory}: "
            + "; ".join(f"{what}: {found}" for what, found in info.items() if found)
        )
    if mode == "rounded":
        with quiet():
            model.hf_quantizer.compressor.decompress_model(model)
        model.to(dtype)
    return model.eval()


@torch.no_grad()
def log_probabilities(model: torch.nn.Module, window: torch.Tensor) -> torch.Tensor:
    with quiet():
        logits = model(input_ids=window[None], use_cache=False).logits[0].double()
    if not torch.isfinite(logits).all():
        raise CheckError(
            f"{model.name_or_path}: {int((~torch.isfinite(logits)).sum())} of {logits.numel()} "
            "logits are not finite"
        )
    return logits.log_softmax(-1)


def evaluate(model: torch.nn.Module, reference: torch.nn.Module | None, ids: torch.Tensor) -> dict:
    nll = kl = agreement = 0.0
    for window in ids:
        log_q = log_probabilities(model, window)
        nll -= log_q[:-1].gather(1, window[1:, None]).sum().item()
        if reference is not None:
            log_p = log_probabilities(reference, window)
            kl += (log_p.exp() * (log_p - log_q)).sum().item()
            agreement += (log_p.argmax(-1) == log_q.argmax(-1)).sum().item()
    tokens = ids.shape[0] * (ids.shape[1] - 1)
    result = {"perplexity": math.exp(nll / tokens), "nll": nll / tokens, "tokens": tokens}
    if reference is not None:
        result |= {
            "kl_mean": kl / ids.numel(),
            "top1_agreement": agreement / ids.numel(),
            "positions": ids.numel(),
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--ids", required=True)
    parser.add_argument("--mode", choices=("dequantize", "lazy", "rounded", "plain"))
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--num-samples", type=int)
    parser.add_argument("--max-length", type=int)
    parser.add_argument("--reference", type=pathlib.Path)
    options = parser.parse_args()

    try:
        ids = read_ids(options.ids)[: options.num_samples, : options.max_length]
        model = load_model(options.directory, options.mode, getattr(torch, options.dtype))
        reference = (
            load_model(options.reference, None, torch.float32) if options.reference else None
        )
        result = evaluate(model, reference, ids)
    except CheckError as error:
        sys.exit(str(error))
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    print(json.dumps({"versions": versions} | result))


if __name__ == "__main__":
    main()
