"""curvq convert, and GGUF files as models of the other commands."""

import json
import unittest

from support import MODELS, CliTest, read_safetensors

GGUF = MODELS.parent / "gguf" / "llama.gguf"
STORIES = MODELS / "stories260K"
TOKENS = MODELS.parent / "stories260K-tokens" / "evaluation.safetensors"


class Convert(CliTest):
    def gguf_of_stories(self, *options):
        path = self.dir / "stories.gguf"
        self.run_curvq("convert", STORIES, "--out", path, "--layout", "gguf", *options)
        return path

    def test_a_gguf_is_a_model_of_every_command(self):
        model = self.gguf_of_stories()
        shown = self.run_curvq("inspect", model).stdout
        self.assertIn("llama, 5 layers, hidden 64", shown)
        window = ["--num-samples", 4]
        expected = self.run_json("eval", STORIES, "--data", TOKENS, *window)["results"]
        found = self.run_json("eval", model, "--data", TOKENS, *window)["results"]
        self.assertEqual(found, expected)
        say = ["--prompt", "Once upon a time", "--max-new-tokens", 40]
        of_gguf, of_directory = (self.run_json("generate", path, *say)["results"]
                                 for path in (model, STORIES))
        self.assertEqual(of_gguf["text"], of_directory["text"])
        self.assertEqual(of_gguf["ids"], of_directory["ids"])
        self.run_curvq("quantize", model, "--out", self.dir / "q", "--method", "rtn", "--scheme", "nvfp4",
                       "--on-indivisible", "keep")
        self.run_curvq("quantize", STORIES, "--out", self.dir / "r", "--method", "rtn", "--scheme", "nvfp4",
                       "--on-indivisible", "keep")
        self.assertEqual(read_safetensors(self.dir / "q/model.safetensors"),
                         read_safetensors(self.dir / "r/model.safetensors"))
        differences = self.run_json("compare", model, STORIES)["results"]["tensors"]
        self.assertTrue(differences)
        self.assertTrue(all(t["max_abs_error"] == 0 for t in differences), differences[:2])

    def test_hessian_of_a_gguf(self):
        model = self.gguf_of_stories()
        ask = ["--data", TOKENS, "--num-samples", 2, "--what", "trace", "--probes", 2, "--per", "model"]
        self.assertEqual(self.run_json("hessian", model, *ask)["results"]["trace"],
                         self.run_json("hessian", STORIES, *ask)["results"]["trace"])

    def test_blocks_become_values(self):
        out = self.dir / "model"
        results = self.run_json("convert", GGUF, "--out", out)["results"]
        self.assertEqual(results["decoded_tensors"], 6)  # q, gate and up of two layers
        stored, expected = read_safetensors(out / "model.safetensors"), read_safetensors(GGUF.with_suffix(".safetensors"))
        for name, (dtype, shape, data) in expected.items():
            self.assertEqual(stored[name][1], shape)
            if stored[name][0] == "F32":
                self.assertEqual(stored[name][2], data, name)
        self.assertEqual(json.loads((out / "config.json").read_text())["model_type"], "llama")
        self.assertTrue((out / "tokenizer.json").exists())
        self.assertEqual(json.loads((out / "conversion_report.json").read_text())["results"], results)
        self.run_curvq("convert", GGUF, "--out", out, "--overwrite")

    def test_inspect_names_the_types(self):
        results = self.run_json("inspect", GGUF)["results"]
        formats = {t["name"]: t["format"] for t in results["tensors"]}
        self.assertEqual(formats["model.layers.0.self_attn.q_proj.weight"], "Q8_0")
        self.assertEqual(formats["model.layers.1.mlp.gate_proj.weight"], "Q4_1")
        self.assertLess(results["bytes"], GGUF.stat().st_size)

    def test_codes_are_kept(self):
        packed = self.dir / "nvfp4"
        self.run_curvq("quantize", STORIES, "--out", packed, "--method", "rtn", "--on-indivisible", "keep",
                       "--scheme", "mxfp4")
        gguf = self.dir / "mxfp4.gguf"
        results = self.run_json("convert", packed, "--out", gguf, "--layout", "gguf")["results"]
        self.assertGreater(results["layers"], 0)
        self.assertEqual(results["decoded_tensors"], 0)
        self.run_curvq("convert", gguf, "--out", self.dir / "back", "--layout", "compressed-tensors")
        before, after = (read_safetensors(d / "model.safetensors") for d in (packed, self.dir / "back"))
        self.assertEqual(before, after)
        window = ["--data", TOKENS, "--num-samples", 4]
        self.assertEqual(self.run_json("eval", gguf, *window)["results"],
                         self.run_json("eval", packed, *window)["results"])

    def test_bad_input(self):
        whole = GGUF.read_bytes()
        cut = self.write("cut.gguf", whole[: len(whole) // 2])
        for command in [["inspect"], ["eval", "--data", TOKENS], ["convert", "--out", self.dir / "x"]]:
            self.fails(command[0], cut, *command[1:], status=3, says=["cut.gguf", "truncated"])
        self.fails("inspect", self.write("text.gguf", "hello"), status=3, says="is not a GGUF file")
        self.fails("convert", self.dir / "none.gguf", "--out", self.dir / "x", status=2, says="none.gguf")
        self.fails("convert", GGUF, "--out", self.dir / "x", "--layout", "gptq", status=3, says="Q4_1")
        self.fails("convert", STORIES, "--out", self.dir / "x", "--layout", "gguf", status=2, says=".gguf")
        self.assertFalse((self.dir / "x").exists())


if __name__ == "__main__":
    unittest.main()
