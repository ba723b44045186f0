"""Quantizes a model with llm-compressor's GPTQ, from loading to the written checkpoint.

    quantize_llm_compressor.py MODEL OUT --scheme nvfp4|mxfp4|int4-g64|int4-g32
        --capture sequential|float|mse
        --calibration FILE.safetensors:NAME --num-samples N --max-length L

Static activation order, damping 0.01, float32 weights, as the package sets them. `sequential` is
its default pipeline (each layer sees the quantized ones before it), `float` its pipeline "basic"
(all Hessians from the unquantized model), `mse` the latter with scales searched for the least
squared error. Layers whose input does not divide into groups stay as they are, since the package
refuses them. The last line printed is JSON: the processor time that the imports alone took. Run
by side_by_side.py.
"""

import argparse
import json
import time

import torch
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from datasets import Dataset
from llmcompressor import oneshot
from llmcompressor.modifiers.gptq import GPTQModifier
from safetensors import safe_open
from transformers import AutoModelForCausalLM

E4M3 = dict(scale_dtype=torch.float8_e4m3fn, zp_dtype=torch.float8_e4m3fn)
E8M0 = dict(scale_dtype=torch.uint8, zp_dtype=torch.uint8)
SCHEMES = {
    "nvfp4": dict(num_bits=4, type="float", strategy="tensor_group", group_size=16, **E4M3),
    "mxfp4": dict(num_bits=4, type="float", strategy="group", group_size=32, **E8M0),
    "int4-g64": dict(num_bits=4, type="int", strategy="group", group_size=64),
    "int4-g32": dict(num_bits=4, type="int", strategy="group", group_size=32),
}
SEARCHING_OBSERVERS = {"nvfp4": "nvfp4_expanded_mse", "int4-g64": "memoryless_mse", "int4-g32": "memoryless_mse"}


def calibration_data(source: str, num_samples: int, max_length: int) -> Dataset:
    path, _, name = source.partition(":")
    with safe_open(path, "pt") as file:
        ids = file.get_tensor(name)[:num_samples, :max_length]
    return Dataset.from_dict(
        {"input_ids": ids.tolist(), "attention_mask": torch.ones_like(ids).tolist()}
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--scheme", choices=SCHEMES, required=True)
    parser.add_argument("--capture", choices=("sequential", "float", "mse"), required=True)
    parser.add_argument("--calibration", required=True)
    parser.add_argument("--num-samples", type=int, required=True)
    parser.add_argument("--max-length", type=int, required=True)
    options = parser.parse_args()

    startup_cpu_seconds = time.process_time()
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    weights = dict(SCHEMES[options.scheme], symmetric=True)
    if options.capture == "mse":
        weights["observer"] = SEARCHING_OBSERVERS[options.scheme]
    indivisible = [
        name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and module.in_features % weights["group_size"]
    ]
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**weights))
    oneshot(
        model=model,
        recipe=GPTQModifier(config_groups={"group_0": scheme}, ignore=["lm_head", *indivisible]),
        dataset=calibration_data(options.calibration, options.num_samples, options.max_length),
        num_calibration_samples=options.num_samples,
        max_seq_length=options.max_length,
        batch_size=8,
        shuffle_calibration_samples=False,
        pipeline="sequential" if options.capture == "sequential" else "basic",
    )
    model.save_pretrained(options.out, save_compressed=True)
    print(json.dumps({"startup_cpu_seconds": startup_cpu_seconds}))


if __name__ == "__main__":
    main()
