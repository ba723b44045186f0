"""Writes ct_inputs.safetensors beside this file: inputs of linear layers as compressed-tensors rounds them.

    .deps/client/bin/python tests/data/formats/make_ct_inputs.py

Of each case `CASE/x` [2, 3, 96] float32; for each of our formats `FORMAT.CASE/rounded` alike, and for those with a
stored scale `FORMAT.CASE/scale` [1] (input_global_scale or input_scale), by the package's own observer arithmetic from
the case's largest magnitude; and `FORMAT/config`, the settings as the package dumps them, in JSON.
"""

import json
import pathlib

import torch
from compressed_tensors.quantization import preset_name_to_scheme
from compressed_tensors.quantization.lifecycle.forward import fake_quantize
from compressed_tensors.quantization.utils import calculate_qparams, compute_dynamic_scales_and_zp, generate_gparam
from safetensors.torch import save_file

PRESETS = {"NVFP4": "nvfp4", "MXFP4": "mxfp4", "FP8": "fp8-tensor", "FP8_DYNAMIC": "fp8", "W8A8": "int8"}


def cases():
    torch.manual_seed(3)
    normal = torch.randn(2, 3, 96)
    yield "normal", normal
    outlier = normal.clone()
    outlier[0, 2, 7] = 300.0
    yield "outlier", outlier
    zeros = normal.clone()
    zeros[1, 1] = 0
    zeros[0, 0, 16:32] = 0
    yield "zeros", zeros
    yield "allzero", torch.zeros(2, 3, 96)
    yield "spread", normal * torch.logspace(-6, 6, 96)
    yield "tiny", normal * 1e-36
    yield "ties", (torch.arange(576).reshape(2, 3, 96) % 49 - 24) / 4.0


def main():
    tensors = {}
    for preset, name in PRESETS.items():
        args = preset_name_to_scheme(preset, ["Linear"]).input_activations
        settings = json.dumps(args.model_dump(mode="json")).encode()
        tensors[f"{name}/config"] = torch.frombuffer(bytearray(settings), dtype=torch.uint8).clone()
        for case, x in cases():
            key, global_scale = f"{name}.{case}/", None
            low, high = torch.aminmax(x)
            if name == "nvfp4":
                tensors[key + "scale"] = global_scale = generate_gparam(low, high)
            if name == "fp8-tensor":
                scale, zero_point = calculate_qparams(low, high, args)
                tensors[key + "scale"] = scale
            else:
                scale, zero_point = compute_dynamic_scales_and_zp(x, args, None, global_scale)
            tensors[f"{case}/x"] = x
            tensors[key + "rounded"] = fake_quantize(x, scale, zero_point, args, global_scale=global_scale)
    save_file({name: t.contiguous() for name, t in tensors.items()}, pathlib.Path(__file__).with_name("ct_inputs.safetensors"))


if __name__ == "__main__":
    main()
