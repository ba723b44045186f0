"""Every model family from a directory to a quantized one and back, and a family that is not known."""

import json
import math
import shutil
import unittest

from support import MODELS, CliTest, edit_tensors, read_safetensors, write_safetensors

FAMILIES = MODELS.parent / "families"
SCHEME = {"phi3": "mxfp4", "gemma3_text": "int4"}  # the others nvfp4


def families():
    return sorted(path.name for path in FAMILIES.iterdir() if path.is_dir())


class Families(CliTest):
    def copy_family(self, name):
        target = self.dir / name
        shutil.copytree(FAMILIES / name, target, ignore=shutil.ignore_patterns("reference.*"))
        return target

    def quantize(self, model, data, *arguments, out="out"):
        return self.run_json("quantize", model, "--out", self.dir / out, "--calibration", data,
                             "--threads", "1", *arguments)["results"]

    def perplexity(self, model, data, *arguments):
        return self.run_json("eval", model, "--data", data, "--threads", "1", *arguments)["results"]

    def test_every_family_is_quantized_and_read_back(self):
        for name in families():
            with self.subTest(name):
                model, data = self.copy_family(name), FAMILIES / name / "reference.safetensors"
                scheme = SCHEME.get(name, "nvfp4")
                options = ["--scheme", scheme] + (["--group-size", "16"] if scheme == "int4" else [])
                for preset in ["default", "best"]:
                    results = self.quantize(model, data, *options, "--preset", preset, out=name + preset)
                    kept = {layer["name"].split(".")[4] for layer in results["kept"]}
                    self.assertEqual(kept, {"experts"} if name == "gpt_oss_mxfp4" else set())
                    for layer in results["layers"]:
                        self.assertTrue(math.isfinite(layer["relative_error"]), layer)
                        self.assertLess(layer["relative_error"], 0.3, layer)
                self.assertTrue(self.run_json("verify", self.dir / (name + "default"))["results"]["ok"])
                packed = self.perplexity(self.dir / (name + "best"), data, "--reference", model)
                self.assertLess(packed["kl_mean"], 1)
                plain = self.perplexity(self.dir / (name + "best"), data, "--engine", "dequantized")
                # The packed engine rounds inputs to 16 bits.
                self.assertLess(abs(packed["perplexity"] / plain["perplexity"] - 1), 1e-3)

    def test_transposed_weights_are_pruned_where_they_are(self):
        model, data = self.copy_family("gpt2"), FAMILIES / "gpt2" / "reference.safetensors"
        results = self.run_json("prune", model, "--out", self.dir / "out", "--sparsity", "0.5", "--method",
                                "obs", "--calibration", data)["results"]
        self.assertEqual(results["zero_weights"], results["weights"] // 2)
        shapes = {name: tensor[1] for name, tensor in read_safetensors(model / "model.safetensors").items()}
        pruned = {name: tensor[1] for name, tensor in
                  read_safetensors(self.dir / "out" / "model.safetensors").items()}
        self.assertEqual(shapes, pruned)
        errors = {layer["name"]: layer["relative_error"] for layer in results["layers"]}
        self.assertLess(max(errors.values()), 0.5)
        # Half of the weights by second-order saliency: far nearer than any other orientation.
        self.assertLess(self.perplexity(self.dir / "out", data, "--reference", model)["kl_mean"], 1)

    def test_names_without_the_model_s_own(self):
        model, data = self.copy_family("gpt2"), FAMILIES / "gpt2" / "reference.safetensors"
        wanted = self.perplexity(model, data)
        edit_tensors(model, lambda tensors: [tensors.update({name.removeprefix("transformer."): tensors.pop(name)})
                                             for name in list(tensors)])
        self.assertIn("h.0.attn.c_attn.weight", read_safetensors(model / "model.safetensors"))
        self.assertEqual(self.perplexity(model, data), wanted)
        self.assertTrue(self.run_json("verify", model)["results"]["ok"])
        results = self.quantize(model, data)
        self.assertIn("h.0.attn.c_attn", [layer["name"] for layer in results["layers"]])
        self.assertTrue(self.run_json("verify", self.dir / "out")["results"]["ok"])
        self.assertLess(self.perplexity(self.dir / "out", data, "--reference", model)["kl_mean"], 1)

    def test_transposed_weights_are_compared_and_not_mixed_up(self):
        out = self.dir / "out"
        self.run_json("quantize", FAMILIES / "gpt2", "--out", out, "--method", "rtn")
        compared = self.run_json("compare", FAMILIES / "gpt2", out)["results"]
        self.assertEqual(compared["shape_mismatches"], [])
        for tensor in compared["tensors"]:  # a square layer taken the wrong way round is off by 1.4
            self.assertLess(tensor["relative_error"], 0.2, tensor)
        self.fails("convert", out, "--out", self.dir / "plain", status=3, says="transposed")

    def test_an_expert_without_tokens_is_rounded_to_nearest_and_named(self):
        ids = self.dir / "ids.safetensors"
        write_safetensors(ids, {"input_ids": ["I64", [1, 2], b"".join(
            i.to_bytes(8, "little") for i in (5, 9))]})
        for family in ("qwen3_moe", "gpt_oss"):
            with self.subTest(family):
                self.check_experts(self.quantize(FAMILIES / family, ids, out=family))

    def check_experts(self, results):
        experts = [layer for layer in results["layers"] if ".experts." in layer["name"]]
        self.assertEqual(len(experts), 2 * 4 * 3)
        for block in ("layers.0.", "layers.1."):
            up = [layer for layer in experts if block in layer["name"] and "up_proj" in layer["name"]]
            self.assertEqual(sum(layer["tokens"] for layer in up), 2 * 2)
        unseen = [layer for layer in experts if layer["tokens"] == 0]
        self.assertGreater(len(unseen), 0)
        for layer in experts:
            self.assertEqual("rounded to nearest" in layer.get("note", ""), layer["tokens"] == 0, layer)

    def test_experts_in_mxfp4_are_kept_unless_a_rule_names_them(self):
        model, data = self.copy_family("gpt_oss_mxfp4"), FAMILIES / "gpt_oss_mxfp4" / "reference.safetensors"
        stored = read_safetensors(model / "model.safetensors")
        results = self.quantize(model, data, "--scheme", "nvfp4")
        self.assertEqual(len(results["kept"]), 2 * 4 * 3)
        for layer in results["kept"]:
            self.assertIn("mxfp4 already", layer["reason"])
        written = read_safetensors(self.dir / "out" / "model.safetensors")
        prefix = "model.layers.1.mlp.experts."
        codes, scales = (stored[prefix + "gate_up_proj" + part][2] for part in ("_blocks", "_scales"))
        row, expert = 16, 2 * 32 * 16  # bytes
        up = b"".join(codes[3 * expert + (2 * r + 1) * row:][:row] for r in range(32))
        self.assertEqual(written[prefix + "3.up_proj.weight_packed"][2], up)
        self.assertEqual(written[prefix + "3.up_proj.weight_scale"][2], scales[3 * 64 + 1:4 * 64:2])
        groups = json.loads((self.dir / "out" / "config.json").read_text())["quantization_config"]
        self.assertEqual(groups["format"], "mixed-precision")
        self.assertTrue(self.run_json("verify", self.dir / "out")["results"]["ok"])
        self.assertTrue(self.run_json("verify", model)["results"]["ok"])
        # Rounded again where that is asked for: some experts, to some loss.
        kept = self.perplexity(self.dir / "out", data, "--reference", model)["kl_mean"]
        results = self.quantize(model, data, "--rule", r"re:.*\.experts\.[01]\..* = int4 group-size=32", out="again")
        self.assertEqual(len(results["kept"]), 2 * 2 * 3)
        again = self.perplexity(self.dir / "again", data, "--reference", model)["kl_mean"]
        self.assertLess(again, 1)
        self.assertNotEqual(again, kept)
        self.assertTrue(self.run_json("verify", self.dir / "again")["results"]["ok"])
        # What is in the directory is what is computed: values, tensor by tensor.
        compared = self.run_json("compare", model, self.dir / "out")["results"]
        self.assertEqual(compared["only_in_a"] + compared["only_in_b"], [])
        experts = [tensor for tensor in compared["tensors"] if ".experts." in tensor["name"]]
        self.assertEqual(len(experts), 2 * 4 * 6)
        self.assertEqual([tensor["relative_error"] for tensor in experts], [0] * len(experts))

    def test_experts_in_mxfp4_become_plain_values(self):
        data = FAMILIES / "gpt_oss_mxfp4" / "reference.safetensors"
        self.run_json("convert", FAMILIES / "gpt_oss_mxfp4", "--out", self.dir / "plain", "--layout", "plain")
        found = self.perplexity(self.dir / "plain", data, "--reference", FAMILIES / "gpt_oss_mxfp4",
                                "--engine", "dequantized")
        self.assertLess(found["kl_mean"], 1e-9)


class UnknownFamily(CliTest):
    def setUp(self):
        super().setUp()
        self.model = self.dir / "model"
        shutil.copytree(FAMILIES / "mixtral", self.model, ignore=shutil.ignore_patterns("reference.*"))
        config = json.loads((self.model / "config.json").read_text())
        config["model_type"] = "nonesuch"
        (self.model / "config.json").write_text(json.dumps(config))
        (self.model / "vocabulary.txt").write_text("kept\n")

    def test_what_needs_a_model_lists_the_known_ones(self):
        data = FAMILIES / "mixtral" / "reference.safetensors"
        for command in [("eval", self.model, "--data", data),
                        ("quantize", self.model, "--out", self.dir / "out", "--calibration", data)]:
            self.fails(*command, status=3, says=['"nonesuch" is not handled', "llama", "gpt_neox"])
        self.assertFalse((self.dir / "out").exists())

    def test_its_tensors_are_rounded_to_nearest(self):
        out = self.dir / "out"
        results = self.run_json("quantize", self.model, "--out", out, "--method", "rtn")["results"]
        self.assertEqual(len(results["layers"]), 2 * (4 + 4 * 3))  # no router, embedding or head
        self.assertEqual((out / "vocabulary.txt").read_text(), "kept\n")
        self.assertEqual(self.run_json("inspect", out)["results"]["architecture"]["supported"], False)
        compared = self.run_json("compare", self.model, out)["results"]
        self.assertEqual(compared["only_in_a"], [])
        self.run_json("convert", out, "--out", self.dir / "modelopt", "--layout", "modelopt")
        # The same layers as where the family is known, and the same values.
        known = self.dir / "known"
        shutil.copytree(FAMILIES / "mixtral", known, ignore=shutil.ignore_patterns("reference.*"))
        self.run_json("quantize", known, "--out", self.dir / "other", "--method", "rtn")
        self.assertEqual(read_safetensors(out / "model.safetensors"),
                         read_safetensors(self.dir / "other" / "model.safetensors"))
        ignored = json.loads((out / "config.json").read_text())["quantization_config"]["ignore"]
        for name in ("lm_head", "model.embed_tokens", "model.layers.1.block_sparse_moe.gate"):
            self.assertIn(name, ignored)


if __name__ == "__main__":
    unittest.main()
