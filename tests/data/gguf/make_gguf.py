"""Writes the GGUF files of this folder, and what the `gguf` package decodes from them.

    pip install gguf==0.19.0 safetensors numpy
    python make_gguf.py

types.gguf         one tensor [3, 512] of each type that curvq reads, of random blocks
types.safetensors  its tensors as gguf.dequantize gives them, float32
llama.gguf         ../models/llama_gqa_tied as llama.cpp's converter writes it: names, rows of q and k
                   interleaved, metadata, the tokenizer of ../models/stories260K; some in blocks
llama.safetensors  its tensors by their names and row orders in transformers
split-*.gguf       the same model in parts
"""

import json
import pathlib

import gguf
import numpy as np
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).parent
MODELS = HERE.parent / "models"
TYPES = "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL MXFP4 NVFP4".split()
# Bytes of a block at which float16 numbers begin: random bytes there would be NaN now and then.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
    "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0],
}  # fmt: skip
SHAPE = (3, 512)


def random_halves(random: np.random.Generator, count: int) -> np.ndarray:
    halves = (random.standard_normal(count) * 2.0 ** random.integers(-12, 4, count)).astype(np.float16)
    halves[:4] = [0.0, -0.0, 6e-8, 65504.0]  # among them the smallest subnormal and the largest
    return halves


def random_blocks(random: np.random.Generator, name: str) -> np.ndarray:
    elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    count = SHAPE[0] * SHAPE[1] // elements
    blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
    for at in HALVES.get(name, []):
        blocks[:, at : at + 2] = random_halves(random, count).view(np.uint8).reshape(count, 2)
    if name in ("MXFP4", "NVFP4"):  # every scale, as far as there are blocks
        scales = 1 if name == "MXFP4" else 4
        blocks[:, :scales] = random.permutation(np.arange(256))[: count * scales].reshape(count, -1)
    return blocks.reshape(SHAPE[0], -1)


def write_types(random: np.random.Generator) -> None:
    writer = gguf.GGUFWriter(HERE / "types.gguf", "none")
    expected = {}
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        if name == "F32":
            data = random.standard_normal(SHAPE).astype(np.float32)
        elif name == "F16":
            data = random_halves(random, SHAPE[0] * SHAPE[1]).reshape(SHAPE)
        elif name == "BF16":
            data = gguf.quantize(random.standard_normal(SHAPE).astype(np.float32), kind)
        else:
            data = random_blocks(random, name)
        writer.add_tensor(name, data, raw_dtype=kind)
        with np.errstate(over="ignore"):
            expected[name] = gguf.dequantize(data, kind).reshape(SHAPE).astype(np.float32)
    finish(writer)
    save_file(expected, HERE / "types.safetensors")


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def interleave(weight: np.ndarray, heads: int) -> np.ndarray:
    """As llama.cpp's converter: row i of the first half of a head, then row i of the second."""
    rows, columns = weight.shape
    halves = weight.reshape(heads, 2, rows // heads // 2, columns)
    return halves.swapaxes(1, 2).reshape(rows, columns)


def undo_interleave(weight: np.ndarray, heads: int) -> np.ndarray:
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def add_tokenizer(writer: gguf.GGUFWriter) -> None:
    tokenizer = json.loads((MODELS / "stories260K/tokenizer.json").read_text())
    vocabulary = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].get)
    rank = {"".join(pair): i for i, pair in enumerate(tokenizer["model"]["merges"])}
    # SentencePiece: a piece's score is minus its rank; characters have the worst.
    scores = [-float(rank.get(token, len(rank) + i)) for i, token in enumerate(vocabulary)]
    types = [gguf.TokenType.NORMAL] * len(vocabulary)
    for i, token in enumerate(vocabulary):
        if token.startswith("<0x") and len(token) == 6:
            types[i] = gguf.TokenType.BYTE
    types[0] = gguf.TokenType.UNKNOWN
    types[1] = types[2] = gguf.TokenType.CONTROL
    writer.add_tokenizer_model("llama")
    writer.add_token_list(vocabulary)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)


def write_llama() -> None:
    config = json.loads((MODELS / "llama_gqa_tied/config.json").read_text())
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    heads = {"q": config["num_attention_heads"], "k": config["num_key_value_heads"]}
    kinds = {"q_proj": "Q8_0", "k_proj": "F16", "v_proj": "F32", "gate_proj": "Q4_1", "up_proj": "Q5_0",
             "down_proj": "BF16"}  # fmt: skip
    tensors, expected = {}, {}
    for name, weight in load_file_f32(MODELS / "llama_gqa_tied/model.safetensors").items():
        part = name.split(".")[-2]
        kind = gguf.GGMLQuantizationType[kinds.get(part, "F32")]
        interleaved = weight
        if part in ("q_proj", "k_proj"):
            interleaved = interleave(weight, heads[part[0]])
        data = gguf.quantize(interleaved, kind)
        decoded = gguf.dequantize(data, kind).reshape(weight.shape).astype(np.float32)
        if part in ("q_proj", "k_proj"):
            decoded = undo_interleave(decoded, heads[part[0]])
        tensors[names.get_name(name, try_suffixes=(".weight",))] = (data, kind)
        expected[name] = decoded
    save_file(expected, HERE / "llama.safetensors")
    for path, split in ((HERE / "llama.gguf", 0), (HERE / "split.gguf", 60_000)):
        writer = gguf.GGUFWriter(path, "llama", split_max_size=split)
        writer.add_context_length(config["max_position_embeddings"])
        writer.add_embedding_length(config["hidden_size"])
        writer.add_block_count(config["num_hidden_layers"])
        writer.add_feed_forward_length(config["intermediate_size"])
        writer.add_head_count(config["num_attention_heads"])
        writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        writer.add_rope_freq_base(config["rope_theta"])
        writer.add_rope_dimension_count(config["head_dim"])
        add_tokenizer(writer)
        for name, (data, kind) in tensors.items():
            writer.add_tensor(name, data, raw_dtype=kind)
        finish(writer)


def load_file_f32(path: pathlib.Path) -> dict[str, np.ndarray]:
    """numpy has no bfloat16: its bits are the upper half of a float32."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    tensors = {}
    for name, entry in json.loads(raw[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        assert entry["dtype"] == "BF16", entry
        bits = np.frombuffer(raw[begin:end], np.uint16).astype(np.uint32) << 16
        tensors[name] = bits.view(np.float32).reshape(entry["shape"])
    return tensors


if __name__ == "__main__":
    write_types(np.random.default_rng(20261130))
    write_llama()
