"""Encoders of BERT type: quantized, compared by their sentence embeddings, refused where tokens are predicted."""

import json
import math
import shutil
import unittest

from support import MODELS, CliTest, read_safetensors, to_floats

DATA = MODELS.parent
ENCODERS = DATA / "encoders"


class Encoders(CliTest):
    def setUp(self):
        super().setUp()
        self.model = self.copy_encoder("bert")
        lines = json.loads((DATA / "tokenizer" / "text.json").read_text())
        lines = [line for line in lines if line.strip() and "\n" not in line and "\r" not in line]
        self.sentences = self.write("sentences.txt", "\n".join(lines[:60]))
        self.calibration = self.write("calibration.txt", "\n".join(lines))

    def copy_encoder(self, name):
        target = self.dir / name
        shutil.copytree(ENCODERS / name, target, ignore=shutil.ignore_patterns("reference.*"))
        shutil.copy(DATA / "tokenizer" / "wordpiece.json", target / "tokenizer.json")
        return target

    def quantize(self, out, *arguments, model=None):
        return self.run_json("quantize", model or self.model, "--out", self.dir / out, "--threads", "1",
                             *arguments)["results"]

    def gptq(self, out, *arguments, **model):
        return self.quantize(out, "--method", "gptq", "--calibration", self.calibration, "--max-length", "32",
                             *arguments, **model)

    def compare(self, model, *arguments, reference=None):
        return self.run_json("eval", model, "--data", self.sentences, "--reference", reference or self.model,
                             "--threads", "1", *arguments)["results"]

    def test_a_model_equals_itself(self):
        results = self.compare(self.model)
        self.assertEqual(results["sentences"], 60)
        self.assertEqual(results["similarity_pairs"], 60 * 59 // 2)
        for key in ("cosine_mean", "cosine_min", "similarity_spearman"):
            self.assertAlmostEqual(results[key], 1, places=6)

    def test_gptq_keeps_embeddings_better_than_rounding(self):
        for name in ("bert", "bert_masked_lm"):
            model = self.copy_encoder(name) if name != "bert" else self.model
            for scheme in (["nvfp4"], ["mxfp4"], ["int4", "--group-size", "32"]):
                with self.subTest(f"{name} {scheme[0]}"):
                    out = name + scheme[0]
                    results = self.gptq(out, "--scheme", *scheme, model=model)
                    self.assertEqual(len(results["layers"]), 2 * 6)
                    self.assertTrue(self.run_json("verify", self.dir / out)["results"]["ok"])
                    self.quantize(out + "-rtn", "--method", "rtn", "--scheme", *scheme, model=model)
                    found = self.compare(self.dir / out, reference=model)
                    rounded = self.compare(self.dir / (out + "-rtn"), reference=model)
                    self.assertGreater(found["cosine_min"], 0.9)
                    self.assertLess(1 - found["cosine_mean"], 0.9 * (1 - rounded["cosine_mean"]))
                    self.assertGreater(found["similarity_spearman"], 0.8)
                    packed = self.compare(self.dir / out, "--engine", "packed", reference=model)
                    self.assertAlmostEqual(packed["cosine_mean"], found["cosine_mean"], places=4)

    def test_the_best_preset_weighs_tokens_by_the_hidden_states(self):
        results = self.gptq("best", "--preset", "best")
        self.assertNotIn("guard", results)
        for layer in results["layers"]:
            self.assertTrue(math.isfinite(layer["relative_error"]), layer)
        self.assertGreater(self.compare(self.dir / "best")["cosine_mean"], 0.97)

    def test_what_is_not_computed_is_ignored_by_loaders(self):
        self.gptq("out")
        config = json.loads((self.dir / "out" / "config.json").read_text())["quantization_config"]
        self.assertIn("pooler.dense", config["ignore"])
        self.assertNotIn("", config["ignore"])
        stored = read_safetensors(self.dir / "out" / "model.safetensors")
        self.assertIn("pooler.dense.weight", stored)

    def test_embeddings_are_written_whole_or_not_at_all(self):
        path = self.dir / "e.safetensors"
        results = self.run_json("eval", self.model, "--data", self.sentences, "--embeddings", path)["results"]
        self.assertEqual(set(results), {"sentences", "tokens"})
        dtype, shape, data = read_safetensors(path)["embeddings"]
        self.assertEqual(shape, [60, 32])
        values = to_floats(dtype, data)
        for i in range(60):
            self.assertAlmostEqual(sum(v * v for v in values[32 * i : 32 * i + 32]), 1, places=5)
        self.fails("eval", self.model, "--data", self.sentences, "--embeddings", path, status=2, says=str(path))

    def test_bounds(self):
        arguments = ("eval", self.model, "--data", self.sentences, "--reference", self.model, "--fail-if")
        self.run_curvq(*arguments, "cosine_min<0.99")
        self.run_curvq(*arguments, "cosine_min>0.99", status=6)
        self.fails(*arguments, "perplexity>3", status=2, says="no result of that name")

    def test_there_is_no_next_token(self):
        data = ("--data", self.sentences)
        encoder = "bert models are encoders"
        self.fails("eval", self.model, *data, status=2, says=[encoder, "--reference"])
        self.fails("generate", self.model, "--prompt", "the", status=3, says=encoder)
        self.fails("hessian", self.model, *data, "--max-length", "16", "--what", "trace", status=3, says=encoder)
        self.fails("hessian", self.model, *data, "--max-length", "16", "--what", "kfac", status=3, says=encoder)
        self.fails("plan", self.model, "--calibration", self.calibration, "--max-length", "16", "--bits", "5",
                   status=3, says=encoder)
        self.fails("quantize", self.model, "--out", self.dir / "out", "--calibration", self.calibration,
                   "--max-length", "16", "--guard", "held-out", status=3, says=["--guard", encoder])
        self.fails("eval", DATA / "families" / "gpt2", "--data", DATA / "families" / "gpt2" / "reference.safetensors",
                   "--embeddings", self.dir / "e.safetensors", status=2, says="needs an encoder")
        self.fails("eval", self.model, "--data", DATA / "encoders" / "bert" / "reference.safetensors", "--reference",
                   self.model, status=2, says="FILE.txt")
        self.assertFalse((self.dir / "out").exists())


if __name__ == "__main__":
    unittest.main()
