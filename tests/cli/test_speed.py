"""curvq plan --speed, bench formats, and the engines of generate and eval."""

import resource
import unittest

from support import MODELS, CliTest

STORIES = MODELS / "stories260K"
IDS = STORIES / "wt2_ids_32x256.safetensors"


class Speed(CliTest):
    def test_plan_adds_up(self):
        words = ("plan", STORIES, "--speed", "--as", "nvfp4", "--inputs", "a8", "--prompt-tokens", "64",
                 "--context-tokens", "32", "--threads", "1")
        results = self.run_json(*words)["results"]
        layers = {row["name"]: row for row in results["layers"] if row["name"] != "mlp.down_proj"}
        self.assertEqual(len(layers), 7)
        self.assertEqual(layers["mlp.up_proj"]["format"], "nvfp4")
        self.assertEqual(layers["mlp.up_proj"]["bytes"], 5 * (172 * 64 * 9 // 16 + 4))
        # 172 inputs are no multiple of 16: down_proj stays as it is.
        down = [row for row in results["layers"] if row["name"] == "mlp.down_proj"]
        self.assertEqual([(row["format"], row["bytes"]) for row in down], [("float32", 5 * 4 * 64 * 172)])
        here, *named = results["machines"]
        self.assertEqual([row["machine"] for row in results["machines"]],
                         ["this machine", "H100 SXM", "H200", "B200", "RTX 5090", "laptop"])
        decode = sum(row["decode_seconds"] for row in results["layers"]) + results["decode_other_seconds"]
        self.assertAlmostEqual(here["decode_tokens_per_second"] * decode, 1, delta=1e-9)
        prefill = sum(row["prefill_seconds"] for row in results["layers"]) + results["prefill_other_seconds"]
        self.assertAlmostEqual(here["prefill_tokens_per_second"] * prefill, 64, delta=1e-6)
        weights = sum(row["bytes"] for row in results["layers"])
        self.assertEqual(here["needed_bytes"], weights + 64 * 2 * 5 * 4 * 8 * 4)  # keys and values
        halves = sum(row["bytes"] // (2 if row["format"] == "float32" else 1) for row in results["layers"])
        for row in named:
            self.assertEqual(row["needed_bytes"], halves + 64 * 2 * 5 * 4 * 8 * 2)
        # One token reads all weights and the keys and values of 32 tokens once.
        h200 = (halves + 32 * 2 * 5 * 4 * 8 * 2) / 4.8e12
        self.assertAlmostEqual(named[1]["decode_tokens_per_second"] * h200, 1, delta=1e-9)
        self.assertEqual(named[1]["decode_bound"], "memory")

    def test_plan_refuses_what_cannot_be(self):
        for arguments, message in (
                (["--bits", "4.5"], "--bits has no part in --speed"),
                (["--prompt-tokens", "5000"], "prompt-tokens is 5000"),
                (["--context-tokens", "0"], "context-tokens"),
                (["--as", "fp3"], "fp3")):
            with self.subTest(arguments):
                self.fails("plan", STORIES, "--speed", *arguments, status=2, says=message)

    def test_dry_run_predicts_the_time(self):
        for method in ("gptq", "rtn"):
            with self.subTest(method):
                words = ("quantize", STORIES, "--method", method, "--scheme", "int4", "--group-size", "4",
                         "--threads", "1") + (("--calibration", f"{IDS}:calib_ids") if method == "gptq" else ())
                results = self.run_json(*words, "--dry-run")["results"]
                self.assertIn("an estimate", self.run_curvq(*words, "--dry-run").stdout)
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                self.run_curvq(*words, "--out", self.dir / method)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                taken = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                # Within 1.5 on a quiet machine; timers of short pieces on a busy one are worse.
                self.assertLess(results["predicted_cpu_seconds"], 3 * taken)
                self.assertGreater(results["predicted_cpu_seconds"], taken / 3)
                self.assertGreater(results["predicted_seconds"], 0)

    def test_formats_are_checked_and_timed(self):
        rows = self.run_json("bench", "formats", "--rounds", "1", "--threads", "1")["results"]["rows"]
        pairs = {(row["format"], row["scale_rule"]) for row in rows}
        self.assertIn(("nvfp4", "curvq"), {(form.split()[0], rule) for form, rule in pairs})
        self.assertEqual({rule for _, rule in pairs},
                         {"curvq", "compressed-tensors", "modelopt", "torchao", "llama.cpp", "four-over-six"})
        for row in rows:
            self.assertGreater(min(row["quantize_gbps"], row["dequantize_gbps"]), 0)
        self.fails("bench", "formats", STORIES, status=2, says="takes neither MODEL")

    def test_rounded_inputs_are_close_and_asked_for(self):
        packed = self.dir / "nvfp4"
        self.run_curvq("quantize", STORIES, "--out", packed, "--scheme", "nvfp4", "--method", "rtn",
                       "--on-indivisible", "keep")
        def nll(engine):
            words = ("eval", packed, "--data", f"{IDS}:eval_ids", "--num-samples", "2", "--engine", engine)
            return self.run_json(*words)["results"]["nll"]
        exact, half, fine, coarse = nll("packed"), nll("packed-bf16"), nll("packed-a15"), nll("packed-a8")
        self.assertAlmostEqual(nll("dequantized"), exact, delta=1e-5)
        self.assertNotEqual(exact, fine)
        self.assertNotEqual(fine, coarse)
        self.assertNotEqual(exact, half)
        # bfloat16 moves an input by 2^-9, 15 bits by 2^-15 of its block's largest, 8 bits by 2^-8.
        self.assertAlmostEqual(half, exact, delta=2.5e-2)
        self.assertAlmostEqual(fine, exact, delta=1e-3)
        self.assertAlmostEqual(coarse, exact, delta=5e-2)
        generated = [self.run_json("generate", packed, "--prompt", "Once upon a time", "--max-new-tokens", "8",
                                   "--engine", engine)["results"]["ids"] for engine in ("packed", "packed-a15")]
        self.assertEqual(*generated)
        self.fails("generate", packed, "--engine", "packed-a4", status=2, says="packed-a8")

    def test_stored_bfloat16_head_is_read_as_it_is(self):
        narrow, wide = self.dir / "bf16", self.dir / "f32"  # the same values
        self.run_curvq("convert", STORIES, "--out", narrow, "--dtype", "bfloat16")
        self.run_curvq("convert", narrow, "--out", wide, "--dtype", "float32")
        texts = [self.run_json("generate", model, "--prompt", "Once upon a time", "--max-new-tokens", "40")["results"]["ids"]
                 for model in (narrow, wide)]
        self.assertEqual(*texts)
        words = ("plan", narrow, "--speed", "--prompt-tokens", "8", "--context-tokens", "8", "--threads", "1")
        head = self.run_json(*words)["results"]["layers"][-1]
        self.assertEqual((head["name"], head["format"], head["bytes"]), ("lm_head", "bfloat16", 2 * 512 * 64))


if __name__ == "__main__":
    unittest.main()
