"""Writes a small random checkpoint of each model family beside this file, and what transformers
computes with it.

    .deps/client/bin/python tests/data/families/make_families.py [OUT [FAMILY...]]

Each directory gets `reference.safetensors`: `input_ids` [2, n] int64; `logits` [2, n, vocab] and
`gradient`, that of the mean next-token cross entropy in the weight that the metadata names as
`gradient_of`, all in float32 from the weights as stored. Weights are scaled so that attention is
not flat; norms and biases are far from 1 and 0 and windows shorter than the text, so that leaving
one out shows.
"""

import json
import math
import pathlib
import shutil
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

HERE = pathlib.Path(__file__).resolve().parent
LENGTH = 24
COMMON = dict(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)
NO_GQA = dict(num_key_value_heads=4)
TWO_TYPES = dict(layer_types=["sliding_attention", "full_attention"], sliding_window=9)
GEMMA = dict(head_dim=16, query_pre_attn_scalar=24, hidden_activation="gelu_pytorch_tanh")
# Half of the frequencies lie on yarn's ramp, and the limit is well inside of what gates reach.
GPT_OSS = dict(
    head_dim=16,
    num_local_experts=4,
    num_experts_per_tok=2,
    sliding_window=9,
    swiglu_limit=1.5,
    intermediate_size=32,
    max_position_embeddings=256,
    rope_parameters=dict(
        rope_type="yarn",
        rope_theta=150.0,
        factor=4.0,
        beta_fast=4.0,
        beta_slow=1.0,
        truncate=False,
        original_max_position_embeddings=64,
    ),
)
GPT2 = dict(
    vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2
)
# Directory: settings (model_type is the directory's name unless set), a setting to spell as
# transformers 4 did.
CASES = {
    "mistral": (dict(sliding_window=7, head_dim=16), "rope_theta"),
    "qwen2": (dict(use_sliding_window=True, sliding_window=6, max_window_layers=1), "rope_theta"),
    "qwen3": (dict(head_dim=16, tie_word_embeddings=True), ""),
    "mixtral": (dict(num_local_experts=4, num_experts_per_tok=2, sliding_window=None), ""),
    "qwen3_moe": (
        dict(
            head_dim=16,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=32,
            norm_topk_prob=False,
        ),
        "rope_theta",
    ),
    "olmo2": (dict(NO_GQA, rms_norm_eps=1e-5), ""),
    "granite": (
        dict(
            embedding_multiplier=12.0,
            residual_multiplier=0.22,
            attention_multiplier=0.5,
            logits_scaling=8.0,
            tie_word_embeddings=True,
        ),
        "rope_theta",
    ),
    "phi3": (dict(sliding_window=10, rms_norm_eps=1e-5), "rope_theta"),
    "gemma": (dict(head_dim=16), ""),
    "gemma2": (
        dict(GEMMA, **TWO_TYPES, attn_logit_softcapping=2.0, final_logit_softcapping=5.0),
        "",
    ),
    "gemma3_text": (dict(GEMMA, **TWO_TYPES), "rope_local_base_freq"),
    "gpt2": (GPT2, ""),
    "opt": (dict(ffn_dim=64, word_embed_proj_dim=32), ""),
    "gpt_neox": (
        dict(
            rope_parameters=dict(
                rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5
            )
        ),
        "rotary_pct",
    ),
    "gpt_neox_sequential": (dict(model_type="gpt_neox", use_parallel_residual=False), ""),
    "gpt_oss": (GPT_OSS, ""),
    "gpt_oss_mxfp4": (dict(GPT_OSS, model_type="gpt_oss"), "rope_scaling"),
}


def fan_in(name: str, weight: torch.Tensor, family: str) -> int:
    conv1d = family == "gpt2" and ("attn" in name or "mlp" in name)
    return weight.shape[0] if conv1d else weight.shape[1]


def randomize(model: torch.nn.Module, generator: torch.Generator) -> None:
    family = model.config.model_type
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.ndim == 1 and name.endswith("weight"):
            middle = 0.0 if "gemma" in family else 1.0
            parameter.data = middle - 0.5 + torch.rand(parameter.shape, generator=generator)
        elif parameter.ndim == 1:
            parameter.data = 0.3 * noise
        elif parameter.ndim == 3:  # experts
            inputs = parameter.shape[1 if family == "gpt_oss" else 2]
            parameter.data = 1.5 / math.sqrt(inputs) * noise
        elif any(part in name for part in ("embed", "wte", "wpe", "lm_head")):
            parameter.data = 0.4 * noise
        else:
            parameter.data = 1.5 / math.sqrt(fan_in(name, parameter, family)) * noise


def spell_as_version_4(config: dict, sign: str) -> dict:
    """Version 4 had no rope_parameters, and a few other names."""
    rope = config.pop("rope_parameters")
    config["torch_dtype"] = config.pop("dtype")
    if sign == "rope_theta":
        config["rope_theta"] = rope["rope_theta"]
    if sign == "rope_scaling":
        config["rope_theta"] = rope.pop("rope_theta")
        config["rope_scaling"] = rope
    if sign == "rope_local_base_freq":
        config["rope_theta"] = rope["full_attention"]["rope_theta"]
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        config["sliding_window_pattern"] = len(config.pop("layer_types"))
    if sign == "rotary_pct":
        config["rotary_emb_base"] = rope["rope_theta"]
        config["rotary_pct"] = rope["partial_rotary_factor"]
    if config["model_type"] == "qwen2":
        config.pop("layer_types")
    return config


def gradient_name(model: torch.nn.Module) -> str:
    """The first linear layer of the first block."""
    return next(
        name
        for name, parameter in model.named_parameters()
        if parameter.ndim == 2 and ".0." in name and "gate" not in name
    )


def draw_blocks(model: torch.nn.Module, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Gives the experts of a model MXFP4 values, and returns their blocks and scales."""
    tensors = {}
    for name, parameter in model.named_parameters():
        if parameter.ndim != 3:
            continue
        experts, inputs, outputs = parameter.shape
        shape = (experts, outputs, inputs // 32)
        blocks = torch.randint(0, 256, (*shape, 16), generator=generator, dtype=torch.uint8)
        scales = torch.randint(122, 125, shape, generator=generator, dtype=torch.uint8)
        parameter.data = convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16).float()
        assert parameter.shape == (experts, inputs, outputs)
        tensors |= {name + "_blocks": blocks, name + "_scales": scales}
    return tensors


def pack_experts(directory: pathlib.Path, packed: dict[str, torch.Tensor]) -> None:
    """Stores experts by their blocks and scales, and sees that transformers takes them so."""
    tensors = load_file(directory / "model.safetensors")
    for name in packed:
        tensors.pop(name.removesuffix("_blocks").removesuffix("_scales"), None)
    save_file(tensors | packed, directory / "model.safetensors", {"format": "pt"})
    config = json.loads((directory / "config.json").read_text())
    kept = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": kept}
    (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    reference = load_file(directory / "reference.safetensors")
    model = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.bfloat16, attn_implementation="eager"
    ).float()
    logits = model(input_ids=reference["input_ids"], use_cache=False).logits
    difference = (logits - reference["logits"]).abs().max() / reference["logits"].abs().max()
    print(f"{directory.name}: from blocks and scales {difference:.1e}")
    assert difference < 1e-5


def write_reference(directory: pathlib.Path, generator: torch.Generator) -> None:
    model, info = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, output_loading_info=True, attn_implementation="eager"
    )
    assert not any(info.values()), info
    model.eval()
    ids = torch.randint(3, model.config.vocab_size, (2, LENGTH), generator=generator)
    logits = model(input_ids=ids, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    name = gradient_name(model)
    gradient = torch.autograd.grad(loss, dict(model.named_parameters())[name])[0]
    print(f"{directory.name}: logits {logits.std():.2f}, gradient of {name} {gradient.std():.4f}")
    save_file(
        {"input_ids": ids, "logits": logits.detach(), "gradient": gradient.contiguous()},
        directory / "reference.safetensors",
        {"gradient_of": name},
    )


def make_family(directory: pathlib.Path, seed: int, options: dict, sign: str) -> None:
    generator = torch.Generator().manual_seed(seed)
    family = options.get("model_type", directory.name)
    options = {key: value for key, value in options.items() if key != "model_type"}
    common = {} if family == "gpt2" else COMMON
    if family in ("opt", "gpt_neox"):
        common = {key: COMMON[key] for key in COMMON if key != "num_key_value_heads"}
    config = AutoConfig.for_model(family, **(common | options))
    model = AutoModelForCausalLM.from_config(config)
    randomize(model, generator)
    packed = draw_blocks(model, generator) if directory.name.endswith("mxfp4") else {}
    shutil.rmtree(directory, ignore_errors=True)
    model.to(torch.bfloat16).save_pretrained(directory)
    (directory / "generation_config.json").unlink(missing_ok=True)
    text = json.loads((directory / "config.json").read_text())
    text = spell_as_version_4(text, sign) if sign else text
    (directory / "config.json").write_text(json.dumps(text, indent=1) + "\n")
    write_reference(directory, generator)
    if packed:
        pack_experts(directory, packed)
    for file in directory.iterdir():
        file.chmod(0o644)


def main(out: pathlib.Path, wanted: list[str]) -> None:
    for seed, (family, case) in enumerate(CASES.items()):
        if not wanted or family in wanted:
            make_family(out / family, seed, *case)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE, sys.argv[2:])
