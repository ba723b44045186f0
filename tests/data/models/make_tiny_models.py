"""Writes the small random llama checkpoints beside this file, and the logits transformers computes.

    .deps/client/bin/python tests/data/models/make_tiny_models.py [OUT]

Each directory gets `logits.safetensors`: `input_ids` [2, n] int64 and `logits` [2, n, vocab]
float32, computed in float32 from the weights as stored. stories260K gets its logits too. The
weights are scaled so that attention is not flat and logits are of the order 1 to 10; norms and
biases are far from 1 and 0, so that leaving one out shows.
"""

import json
import math
import pathlib
import shutil
import sys

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
LENGTH = 24
LOGIT_STD = 3.0
COMMON = dict(
    vocab_size=160,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    bos_token_id=1,
    eos_token_id=2,
    rms_norm_eps=1e-5,
)
# With original_max_position_embeddings = 64 the wavelengths 6, 32 and 167 and up fall into all
# three branches of the rule.
LLAMA3_ROPE = dict(
    rope_type="llama3",
    rope_theta=500000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=64,
)
# Name: config, dtype of the weights, generation of config.json's spelling, largest shard.
CASES = {
    "llama_gqa_tied": (dict(tie_word_embeddings=True), torch.bfloat16, 4, "1GB"),
    "llama_mha_untied": (
        dict(num_key_value_heads=4, hidden_act="gelu", rms_norm_eps=1e-6),
        torch.float16,
        5,
        "1GB",
    ),
    "llama_rope_llama3": (dict(rope_parameters=LLAMA3_ROPE), torch.bfloat16, 4, "1GB"),
    "llama_biases_sharded": (
        dict(attention_bias=True, mlp_bias=True, num_key_value_heads=1, tie_word_embeddings=True),
        torch.bfloat16,
        5,
        "100KB",
    ),
    "llama_wide_heads": (
        dict(
            head_dim=32,
            num_hidden_layers=1,
            hidden_size=96,
            intermediate_size=160,
            hidden_act="gelu_pytorch_tanh",
        ),
        torch.float16,
        4,
        "1GB",
    ),
}


def weight_std(name: str, weight: torch.Tensor, tied: bool) -> float:
    if "embed" in name and not tied:
        return 0.01  # of the size of sqrt(rms_norm_eps), so that a wrong epsilon shows
    head = "embed" in name or "lm_head" in name
    return (LOGIT_STD if head else 1.5) / math.sqrt(weight.shape[1])


def randomize(model: LlamaForCausalLM, generator: torch.Generator) -> None:
    tied = model.config.tie_word_embeddings
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.data = 0.5 + torch.rand(parameter.shape, generator=generator)
        elif parameter.ndim == 1:
            parameter.data = 0.5 * torch.randn(parameter.shape, generator=generator)
        else:
            parameter.data = weight_std(name, parameter, tied) * torch.randn(
                parameter.shape, generator=generator
            )


def spell_as_version_4(config: dict) -> dict:
    """Version 4 wrote torch_dtype, rope_theta, rope_scaling; 5 writes dtype, rope_parameters."""
    rope = config.pop("rope_parameters")
    config["torch_dtype"] = config.pop("dtype")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    return config


@torch.no_grad()
def write_logits(directory: pathlib.Path, ids: torch.Tensor) -> None:
    model, info = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, output_loading_info=True
    )
    assert not any(info.values()), info
    logits = model.eval()(input_ids=ids, use_cache=False).logits
    print(f"{directory.name}: logits {logits.std():.2f} +- {logits.abs().max():.2f}")
    save_file({"input_ids": ids, "logits": logits.contiguous()}, directory / "logits.safetensors")
    for file in directory.iterdir():
        file.chmod(0o644)


def make_tiny_model(
    directory: pathlib.Path, seed: int, options: dict, dtype: torch.dtype, version: int, shard: str
) -> None:
    generator = torch.Generator().manual_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(**(COMMON | options)))
    randomize(model, generator)
    shutil.rmtree(directory, ignore_errors=True)
    model.to(dtype).save_pretrained(directory, max_shard_size=shard)
    (directory / "generation_config.json").unlink()
    config = json.loads((directory / "config.json").read_text())
    config = spell_as_version_4(config) if version == 4 else config
    (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    write_logits(
        directory, torch.randint(3, COMMON["vocab_size"], (2, LENGTH), generator=generator)
    )


def stories_ids(directory: pathlib.Path) -> torch.Tensor:
    greedy = json.loads((directory / "greedy_reference.json").read_text())["greedy_ids"]
    with safe_open(directory / "wt2_ids_32x256.safetensors", "pt") as file:
        wikitext = file.get_tensor("calib_ids")[0]
    return torch.stack([torch.tensor(greedy[:48]), wikitext[:48].long()])


def main(out: pathlib.Path) -> None:
    for seed, (name, case) in enumerate(CASES.items()):
        make_tiny_model(out / name, seed, *case)
    write_logits(HERE / "stories260K", stories_ids(HERE / "stories260K"))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
