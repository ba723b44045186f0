#!/usr/bin/env python3
"""Writes the files of this folder with the Python package safetensors (see README.md)."""
import ctypes
import pathlib

import safetensors

HERE = pathlib.Path(__file__).parent
ITEM_BYTES = {"bool": 1, "uint8": 1, "int8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e8m0fnu": 1,
              "uint16": 2, "int16": 2, "float16": 2, "bfloat16": 2, "uint32": 4, "int32": 4, "float32": 4,
              "uint64": 8, "int64": 8, "float64": 8}


def pattern(count, seed):
    """The bytes (seed + 7 i) mod 251, which the test computes, too."""
    return bytes((seed + 7 * i) % 251 for i in range(count))


def main():
    tensors = {}
    buffers = []  # a TensorSpec does not keep its bytes alive

    def spec(dtype, shape, data):
        buffers.append(ctypes.create_string_buffer(data, len(data) + 1))
        return safetensors.TensorSpec(dtype=dtype, shape=shape, data_ptr=ctypes.addressof(buffers[-1]),
                                      data_len=len(data))

    for seed, (dtype, size) in enumerate(ITEM_BYTES.items()):
        data = bytes([1, 0, 1, 1, 0, 0]) if dtype == "bool" else pattern(6 * size, seed)
        tensors[f"t.{dtype}"] = spec(dtype, [2, 3], data)
    tensors["scalar"] = spec("float32", [], pattern(4, 90))
    tensors["empty.a"] = spec("float16", [0], b"")
    tensors["empty.b"] = spec("int64", [3, 0, 2], b"")
    tensors["näme \"quoted\" \\"] = spec("uint8", [5], pattern(5, 91))
    metadata = {"format": "np", "note": "é \"x\" \\ \n"}
    (HERE / "python_every_dtype.safetensors").write_bytes(safetensors.serialize(tensors, metadata))
    (HERE / "python_no_tensors.safetensors").write_bytes(safetensors.serialize({}, {"a": "b"}))


main()
