"""Quantized copies of a test model: random codes in the compressed-tensors layouts, written from
the layouts' description, with the values that they stand for."""

import functools
import json
import random
import re
import struct

from support import MODELS, read_safetensors, write_safetensors

E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
LINEAR = re.compile(r".*\.layers\.\d+\.(self_attn|mlp)\.\w+_proj\.weight$")

# Name: format, settings of the weights.
LAYOUTS = {
    "nvfp4": ("nvfp4-pack-quantized", {
        "num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True,
        "dynamic": False, "scale_dtype": "torch.float8_e4m3fn"}),
    "mxfp4": ("mxfp4-pack-quantized", {
        "num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "symmetric": True,
        "dynamic": False, "scale_dtype": "torch.uint8"}),
    "int4": ("pack-quantized", {
        "num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True, "dynamic": False}),
    "int4-asymmetric": ("pack-quantized", {
        "num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": False, "dynamic": False}),
    "int8": ("pack-quantized", {
        "num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True, "dynamic": False}),
    "fp8": ("float-quantized", {
        "num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False}),
}


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def e4m3(code):
    sign, exponent, mantissa = code >> 7, code >> 3 & 15, code & 7
    value = mantissa / 8 * 2**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return -value if sign else value


def pack_words(codes, bits):
    """Unsigned codes of one row in 32-bit words, the first in the lowest bits."""
    per_word = 32 // bits
    words = []
    for begin in range(0, len(codes), per_word):
        words.append(sum(code << bits * i for i, code in enumerate(codes[begin : begin + per_word])))
    return struct.pack(f"<{len(words)}I", *words)


def quantize_layer(layer, rows, cols, layout, rng):
    """({tensor name: [dtype, shape, data]}, values row by row)."""
    weights = LAYOUTS[layout][1]
    bits, group = weights["num_bits"], weights.get("group_size", cols)
    groups = cols // group
    top = 1 << bits - 1
    parts, values = {}, []

    def add(suffix, dtype, shape, data):
        parts[layer + suffix] = [dtype, shape, bytearray(data)]

    if layout == "fp8":
        codes = [[rng.choice([0, 128]) + rng.randrange(0x7F) for _ in range(cols)] for _ in range(rows)]
        elements = [[e4m3(code) for code in row] for row in codes]
        add(".weight", "F8_E4M3", [rows, cols], b"".join(bytes(row) for row in codes))
    elif weights["type"] == "float":
        codes = [[rng.randrange(16) for _ in range(cols)] for _ in range(rows)]
        elements = [[(-1 if code & 8 else 1) * E2M1[code & 7] for code in row] for row in codes]
        packed = bytes(row[i] | row[i + 1] << 4 for row in codes for i in range(0, cols, 2))
        add(".weight_packed", "U8", [rows, cols // 2], packed)
    else:
        codes = [[rng.randrange(2 * top) for _ in range(cols)] for _ in range(rows)]
        zeros = [[0 if weights["symmetric"] else rng.randrange(2 * top) - top for _ in range(groups)]
                 for _ in range(rows)]
        elements = [[code - top - zeros[r][c // group] for c, code in enumerate(row)] for r, row in enumerate(codes)]
        packed = b"".join(pack_words(row, bits) for row in codes)
        add(".weight_packed", "I32", [rows, cols * bits // 32], packed)
        add(".weight_shape", "I64", [2], struct.pack("<2q", rows, cols))
        if not weights["symmetric"]:
            columns = [pack_words([row[g] + top for row in zeros], bits) for g in range(groups)]
            words = len(columns[0]) // 4
            data = b"".join(columns[g][4 * w : 4 * w + 4] for w in range(words) for g in range(groups))
            add(".weight_zero_point", "I32", [words, groups], data)

    if layout == "nvfp4":
        divisor = 320.0
        scale_codes = [[rng.randrange(0x30, 0x48) for _ in range(groups)] for _ in range(rows)]
        scales = [[f32(e4m3(code) / divisor) for code in row] for row in scale_codes]
        add(".weight_scale", "F8_E4M3", [rows, groups], b"".join(bytes(row) for row in scale_codes))
        add(".weight_global_scale", "F32", [1], struct.pack("<f", divisor))
    elif layout == "mxfp4":
        scale_codes = [[rng.randrange(118, 124) for _ in range(groups)] for _ in range(rows)]
        scales = [[2.0 ** (code - 127) for code in row] for row in scale_codes]
        add(".weight_scale", "U8", [rows, groups], b"".join(bytes(row) for row in scale_codes))
    else:
        scales = [[f32(rng.uniform(0.001, 0.02)) for _ in range(groups)] for _ in range(rows)]
        add(".weight_scale", "F32", [rows, groups], b"".join(struct.pack("<f", s) for row in scales for s in row))

    for r in range(rows):
        values += [f32(element * scales[r][c // group]) for c, element in enumerate(elements[r])]
    return parts, values


@functools.cache
def quantize_model(layout, ignore):
    """(tensors, config.json, values of each quantized weight by name) of llama_gqa_tied."""
    rng = random.Random(layout)
    source = MODELS / "llama_gqa_tied"
    tensors, values = {}, {}
    for name, tensor in read_safetensors(source / "model.safetensors").items():
        layer = name[: -len(".weight")]
        if LINEAR.match(name) and layer not in ignore:
            parts, values[name] = quantize_layer(layer, *tensor[1], layout, rng)
            tensors.update(parts)
        else:
            tensors[name] = tensor
    layout_format, weights = LAYOUTS[layout]
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "compressed-tensors", "format": layout_format, "quantization_status": "compressed",
        "ignore": ["lm_head", *ignore],
        "config_groups": {"group_0": {"targets": ["Linear"], "format": layout_format, "weights": weights}},
    }
    return tensors, json.dumps(config), values


def quantized_copy(target, layout, ignore=()):
    """Writes the quantized model as directory `target`; returns it and the values."""
    tensors, config, values = quantize_model(layout, tuple(ignore))
    target.mkdir()
    write_safetensors(target / "model.safetensors", tensors)
    (target / "config.json").write_text(config)
    return target, values
