"""Checkpoints that say what inputs of layers are rounded to: quantized, read back, converted, refused."""

import array
import json
import math
import unittest

from support import MODELS, CliTest, edit_tensors, read_safetensors

MODEL = MODELS / "llama_gqa_tied"
DATA = MODEL / "logits.safetensors"
# Name, weights, what inspect calls it.
FORMATS = [
    ("nvfp4", ["--scheme", "nvfp4"], "nvfp4, inputs nvfp4"),
    ("mxfp4", ["--scheme", "mxfp4"], "mxfp4, inputs mxfp4"),
    ("fp8", ["--scheme", "fp8"], "fp8 channel, inputs fp8"),
    ("fp8-tensor", ["--scheme", "fp8"], "fp8 channel, inputs fp8-tensor"),
    ("int8", ["--scheme", "int8"], "int8 channel, inputs int8"),
    ("fp8", ["--scheme", "int4", "--group-size", "32"], "int4 g32, inputs fp8"),
]


def floats(tensor):
    dtype, _, data = tensor
    if dtype == "BF16":
        data = b"".join(b"\0\0" + bytes(data[i : i + 2]) for i in range(0, len(data), 2))
    return array.array("f", bytes(data))


class InputFormat(CliTest):
    def quantize(self, *arguments, out="out", method="rtn", calibration=True):
        data = ["--calibration", DATA] if calibration else []
        self.run_json("quantize", MODEL, "--out", self.dir / out, "--method", method, "--threads", "1", *data, *arguments)
        return self.dir / out

    def nll(self, model, *arguments):
        return self.run_json("eval", model, "--data", DATA, "--threads", "1", *arguments)["results"]["nll"]

    def test_every_format_is_written_read_and_computed(self):
        for i, (name, scheme, described) in enumerate(FORMATS):
            with self.subTest(described):
                plain = self.quantize(*scheme, out=f"plain{i}")
                out = self.quantize(*scheme, "--input-format", name, out=f"rounded{i}")
                self.assertTrue(self.run_json("verify", out)["results"]["ok"])
                self.assertIn(described, self.run_json("inspect", out)["results"]["formats"])
                packed, dense = self.nll(out), self.nll(out, "--engine", "dequantized")
                # The same rounded inputs; where a sum lies between two codes engines may differ.
                self.assertLess(abs(packed - dense), 2e-3)
                self.assertGreater(abs(self.nll(plain) - packed), 1e-6)
                for tensor in read_safetensors(plain / "model.safetensors"):
                    if scheme[1] != "int8":
                        self.assertEqual(read_safetensors(plain / "model.safetensors")[tensor],
                                         read_safetensors(out / "model.safetensors")[tensor])

    def test_stored_scale_is_that_of_the_calibration_data(self):
        tensors = read_safetensors(MODEL / "model.safetensors")
        table, norm = (floats(tensors[f"model.{name}.weight"]) for name in ("embed_tokens", "layers.0.input_layernorm"))
        config = json.loads((MODEL / "config.json").read_text())
        width, epsilon, amax = len(norm), config["rms_norm_eps"], 0.0
        dtype, _, data = read_safetensors(DATA)["input_ids"]
        for token in array.array("q" if dtype == "I64" else "i", bytes(data)):
            row = table[token * width : (token + 1) * width]
            size = math.sqrt(sum(v * v for v in row) / width + epsilon)
            amax = max(amax, *(abs(v * w) / size for v, w in zip(row, norm)))
        for name, scheme, wanted in [("nvfp4", "nvfp4", 2688 / amax), ("fp8-tensor", "fp8", amax / 448)]:
            out = self.quantize("--scheme", scheme, "--input-format", name, out=name)
            tensors = read_safetensors(out / "model.safetensors")
            part = "input_global_scale" if name == "nvfp4" else "input_scale"
            attention = [tensors[f"model.layers.0.self_attn.{p}_proj.{part}"] for p in "qkv"]
            self.assertEqual(attention[0], attention[1])
            self.assertEqual(attention[0], attention[2])
            # fp8's is in the dtype of the weights, here bfloat16 or float32.
            self.assertLess(abs(floats(attention[0])[0] / wanted - 1), 2**-8 if attention[0][0] == "BF16" else 1e-5)

    def test_gptq_gives_the_same_bytes_and_the_same_scales(self):
        arguments = ["--scheme", "nvfp4", "--input-format", "nvfp4"]
        files = [(self.quantize(*arguments, out=name, method="gptq") / "model.safetensors").read_bytes() for name in "ab"]
        self.assertEqual(files[0], files[1])
        rtn = read_safetensors(self.quantize(*arguments, out="c") / "model.safetensors")
        name = "model.layers.0.self_attn.q_proj.input_global_scale"
        self.assertEqual(read_safetensors(self.dir / "a" / "model.safetensors")[name], rtn[name])

    def test_modelopt_holds_the_reciprocal(self):
        out = self.quantize("--scheme", "nvfp4", "--input-format", "nvfp4")
        self.run_json("convert", out, "--out", self.dir / "modelopt", "--layout", "modelopt")
        config = json.loads((self.dir / "modelopt/config.json").read_text())["quantization_config"]
        self.assertEqual(config["quant_algo"], "NVFP4")
        self.run_json("convert", self.dir / "modelopt", "--out", self.dir / "back", "--layout", "compressed-tensors")
        self.assertLess(abs(self.nll(out) - self.nll(self.dir / "back")), 2e-3)
        plain = self.run_curvq("convert", out, "--out", self.dir / "plain", "--layout", "plain")
        self.assertIn("leaves inputs unrounded", plain.stderr)

    def test_single_layers_by_rules(self):
        out = self.quantize("--scheme", "nvfp4", "--input-format", "nvfp4", "--rule", "*down_proj = fp8 input-format=fp8",
                            "--rule", "*o_proj = nvfp4")
        groups = json.loads((out / "config.json").read_text())["quantization_config"]["config_groups"].values()
        inputs = {group["targets"][0].rsplit(".", 1)[1]: group["input_activations"] for group in groups}
        self.assertEqual(inputs["down_proj"]["strategy"], "token")
        self.assertIsNone(inputs["o_proj"])
        self.assertEqual(inputs["q_proj"]["dynamic"], "local")
        self.assertTrue(math.isfinite(self.nll(out)))

    def test_what_no_server_runs_is_refused_beforehand(self):
        def refused(*arguments, says):
            self.fails("quantize", MODEL, "--dry-run", "--method", "rtn", *arguments, status=2, says=says)
        refused("--scheme", "nvfp4", "--input-format", "fp8", says="allowed: none, nvfp4")
        refused("--scheme", "int4", "--group-size", "0", "--input-format", "fp8", says="int4 channel")
        refused("--scheme", "int4", "--group-size", "48", "--on-indivisible", "channel", "--input-format", "fp8",
                says=["q_proj: inputs fp8", "use --on-indivisible keep"])
        refused("--scheme", "int8", "--asymmetric", "--input-format", "int8", says="allowed: none")
        refused("--scheme", "fp8", "--rule", "*q_proj = int8 input-format=fp8", says="allowed: none, int8")
        refused("--scheme", "fp8", "--rule", "*q_proj = fp8 input-format=x", says="unknown input format 'x'")
        refused("--scheme", "nvfp4", "--input-format", "nvfp4", says=["--calibration", "or mxfp4"])
        refused("--scheme", "fp8", "--input-format", "fp8-tensor", says=["--calibration", "or fp8"])
        bare = MODEL / "model.safetensors"
        self.fails("quantize", bare, "--dry-run", "--method", "rtn", "--scheme", "nvfp4", "--input-format", "nvfp4",
                   status=2, says="model directory of a known family")
        self.quantize("--scheme", "mxfp4", "--input-format", "mxfp4", calibration=False)

    def test_damaged_scales_are_found(self):
        out = self.quantize("--scheme", "nvfp4", "--input-format", "nvfp4")
        name = "model.layers.1.mlp.up_proj.input_global_scale"
        edit_tensors(out, lambda tensors: tensors.update({name: ["F32", [1], bytearray(4)]}))
        self.assertIn(name, self.run_curvq("verify", out, status=6).stdout)
        self.fails("eval", out, "--data", DATA, status=3, says=[name, "positive"])
        edit_tensors(out, lambda tensors: tensors.pop(name))
        self.assertIn(name, self.run_curvq("verify", out, status=6).stdout)
        self.fails("eval", out, "--data", DATA, status=3, says=name)


if __name__ == "__main__":
    unittest.main()
