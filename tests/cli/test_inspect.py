"""curvq inspect."""

import math
import struct
import unittest

from quantized import LAYOUTS, quantized_copy
from support import MODELS, CliTest, edit_json, edit_tensors, read_safetensors


class Inspect(CliTest):
    def test_text(self):
        text = self.run_curvq("inspect", MODELS / "stories260K").stdout
        for part in ["llama, 5 layers, hidden 64", "vocabulary 512", "tied embeddings", "260,032 parameters",
                     "32.000 bits a weight", "model.layers.{0..4}.mlp.up_proj.weight", "[172, 64]"]:
            self.assertIn(part, text)
        self.assertEqual(text.count("up_proj"), 1)

    def test_tensors_lists_every_block(self):
        text = self.run_curvq("inspect", MODELS / "stories260K", "--tensors").stdout
        self.assertEqual(text.count("up_proj"), 5)

    def test_json_of_a_sharded_model(self):
        path = MODELS / "llama_biases_sharded"
        results = self.run_json("inspect", path)["results"]
        stored = {}
        for shard in path.glob("model-*.safetensors"):
            stored.update(read_safetensors(shard))
        self.assertEqual(results["files"], 2)
        self.assertEqual(results["num_tensors"], len(stored))
        self.assertEqual(results["parameters"], sum(math.prod(shape) for _, shape, _ in stored.values()))
        self.assertEqual(results["bytes"], sum(len(data) for _, _, data in stored.values()))
        self.assertEqual({t["name"]: t["shape"] for t in results["tensors"]},
                         {name: shape for name, (_, shape, _) in stored.items()})
        self.assertEqual(results["architecture"]["family"], "llama")
        self.assertEqual(results["architecture"]["layers"], 2)

    def test_sparsity_of_a_dense_model(self):
        results = self.run_json("inspect", MODELS / "stories260K", "--sparsity")["results"]["sparsity"]
        self.assertEqual(results["elements"], results["nonzeros"])
        self.assertEqual(results["csr_bytes"], results["dense_bytes"])  # nothing is smaller than dense
        for matrix in results["matrices"]:
            self.assertGreater(matrix["csr_bytes"], matrix["dense_bytes"])
            self.assertNotIn("two_four_bytes", matrix)
        text = self.run_curvq("inspect", MODELS / "stories260K", "--sparsity").stdout
        self.assertIn("32-bit values: CSR is smaller than dense below", text)

    def test_quantized_layouts(self):
        # Bits of codes, scales and zero points a weight; tensor scales and weight_shape come on top.
        bits = {"nvfp4": 4 + 8 / 16, "mxfp4": 4 + 8 / 32, "int4": 4 + 32 / 32, "int4-asymmetric": 4 + 36 / 32,
                "int8": 8 + 32 / 64, "fp8": 8 + 32 / 64}
        for layout in LAYOUTS:
            with self.subTest(layout):
                model, values = quantized_copy(self.dir / layout, layout)
                results = self.run_json("inspect", model)["results"]
                layers = {t["name"]: t for t in results["tensors"] if "scheme" in t}
                self.assertEqual(set(layers), set(values))
                for name, layer in layers.items():
                    self.assertEqual(layer["scheme"], layout.split("-")[0])
                    self.assertEqual(math.prod(layer["shape"]), len(values[name]))
                self.assertEqual(results["quantized"]["num_tensors"], len(values))
                up = layers["model.layers.0.mlp.up_proj.weight"]
                extra = {"nvfp4": 32, "mxfp4": 0, "fp8": 0}.get(layout, 128)
                self.assertEqual(up["bits_per_weight"], bits[layout] + extra / (64 * 128))

    def test_bare_file_quantized_or_not(self):
        model, values = quantized_copy(self.dir / "model", "nvfp4")
        bare = self.run_json("inspect", model / "model.safetensors")["results"]
        self.assertEqual(bare["quantized"]["num_tensors"], len(values))
        self.assertFalse(bare["architecture"]["supported"])
        self.assertIn("no config.json", self.run_curvq("inspect", model / "model.safetensors").stdout)

    def test_unknown_family_lists_its_tensors(self):
        model = self.copy_model("llama_gqa_tied")
        edit_json(model / "config.json", lambda config: config.update(model_type="zebra"))
        text = self.run_curvq("inspect", model).stdout
        self.assertIn("zebra", text)
        self.assertIn("model.layers.{0..1}.self_attn.q_proj.weight", text)

    def test_unknown_quantization_lists_what_is_stored(self):
        model, _ = quantized_copy(self.dir / "model", "int4")
        edit_json(model / "config.json", lambda config: config["quantization_config"].update(quant_method="gptq"))
        result = self.run_curvq("inspect", model)
        self.assertIn("up_proj.weight_packed", result.stdout)
        self.assertIn("warning: ", result.stderr)
        self.assertIn("gptq", result.stderr)

    def test_weight_shape_that_lies(self):
        model, _ = quantized_copy(self.dir / "model", "int4")
        name = "model.layers.0.mlp.up_proj.weight"

        def change(tensors):
            tensors[name + "_shape"][2] = struct.pack("<2q", -1, 1 << 62)

        edit_tensors(model, change)
        for path in [model, model / "model.safetensors"]:
            tensors = self.run_json("inspect", path)["results"]["tensors"]
            shapes = {t["name"]: t["shape"] for t in tensors}
            self.assertEqual(shapes.get(name, shapes.get(name + "_packed"))[0], 128)

    def test_no_hash(self):
        value = self.run_json("inspect", MODELS / "llama_gqa_tied", "--no-hash")
        self.assertNotIn("hash", value["inputs"]["model"])

    def test_what_cannot_be_read(self):
        self.fails("inspect", self.dir / "none", status=2, says="none: does not exist")
        self.fails("inspect", self.dir, status=3, says="has no weights")
        self.fails("inspect", self.write("x.safetensors", "short"), status=3, says="x.safetensors")
        model = self.copy_model("llama_gqa_tied")
        (model / "config.json").write_text("{")
        self.fails("inspect", model, status=3, says="config.json")


if __name__ == "__main__":
    unittest.main()
