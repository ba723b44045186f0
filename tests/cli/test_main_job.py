"""quantize, eval and generate from the command line, on stories260K and on a bare file of layers."""

import json
import random
import signal
import struct
import subprocess
import time

from support import BINARY, MODELS, CliTest, read_safetensors, write_safetensors

STORIES = MODELS / "stories260K"
TOKENS = MODELS.parent / "stories260K-tokens"
CALIBRATION = TOKENS / "calibration.safetensors"
LAYERS = MODELS.parent / "layers"
QUANTIZE = ("quantize", STORIES, "--on-indivisible", "keep", "--calibration", CALIBRATION, "--num-samples", "4")
TEXT = "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. " * 20


class MainJob(CliTest):
    def test_quantize_eval_generate(self):
        out = self.dir / "nvfp4"
        report = self.run_json(*QUANTIZE, "--out", out)
        self.assertEqual(json.loads((out / "quantization_report.json").read_text()), report)
        self.assertEqual(report["inputs"]["calibration"]["windows"], 4)
        for layer in report["results"]["layers"]:
            self.assertLess(layer["relative_error"], layer["rtn_relative_error"], layer["name"])
        result = self.run_json("eval", out, "--reference", STORIES, "--data", TOKENS / "evaluation.safetensors",
                               "--num-samples", "4")["results"]
        self.assertEqual(result["tokens"], 4 * 255)
        self.assertTrue(0 < result["kl_mean"] < 0.2, result)
        self.assertTrue(0.7 < result["top1_agreement"] < 1, result)
        generated = self.run_json("generate", out, "--max-new-tokens", "12")["results"]
        self.assertEqual(len(generated["ids"]), 12)
        self.assertTrue(generated["text"].startswith("Once upon a time"), generated)

    def test_text_is_calibration_data_too(self):
        text = self.write("text.txt", TEXT)
        lines = self.write("text.jsonl", json.dumps({"text": TEXT}) + "\n")
        results = []
        for source in (text, lines):
            out = self.dir / f"from_{source.name}"
            report = self.run_json("quantize", STORIES, "--out", out, "--on-indivisible", "keep", "--calibration",
                                   source, "--max-length", "128")
            results.append(report["inputs"]["calibration"]["hash"])
            self.assertEqual(report["inputs"]["calibration"]["length"], 128)
        self.assertEqual(*results)

    def test_fail_if(self):
        data = ("--data", CALIBRATION, "--num-samples", "2")
        self.run_curvq("eval", STORIES, *data, "--fail-if", "perplexity>1000")
        self.run_curvq("eval", STORIES, *data, "--fail-if", "perplexity>1", status=6)
        self.fails("eval", STORIES, *data, "--fail-if", "kl_mean>1", status=2, says="needs --reference")
        self.fails("eval", STORIES, *data, "--fail-if", "speed>1", status=2, says="no result of that name")
        self.fails("eval", STORIES, *data, "--fail-if", "nll", status=2, says="KEY>NUMBER")

    def test_bare_file_with_statistics(self):
        out = self.dir / "layers.safetensors"
        report = self.run_json("quantize", LAYERS / "weights.safetensors", "--stats", LAYERS / "stats.safetensors",
                               "--out", out, "--scheme", "mxfp4")
        self.assertEqual(len(report["results"]["layers"]), 4)
        self.assertIn("stories.L4.o_proj.weight_packed", read_safetensors(out))
        directory = self.dir / "layers"
        self.run_json("quantize", LAYERS / "weights.safetensors", "--stats", LAYERS / "stats.safetensors",
                      "--out", directory, "--scheme", "mxfp4")
        self.assertEqual((directory / "model.safetensors").read_bytes(), out.read_bytes())

    def test_inputs_give_the_hessian_that_they_make(self):
        random.seed(1)
        rows, cols, samples = 4, 32, 50
        pack = lambda values: struct.pack(f"<{len(values)}f", *values)
        x = [[random.choice((-2.0, -1.0, 0.5, 1.0, 3.0)) for _ in range(cols)] for _ in range(samples)]
        hessian = [2 / samples * sum(r[i] * r[j] for r in x) for i in range(cols) for j in range(cols)]
        weight = pack([random.gauss(0, 1) for _ in range(rows * cols)])
        write_safetensors(self.dir / "w.safetensors", {"a.weight": ["F32", [rows, cols], weight]})
        write_safetensors(self.dir / "x.safetensors",
                          {"a.inputs": ["F32", [samples, cols], pack([v for r in x for v in r])]})
        write_safetensors(self.dir / "h.safetensors", {"a.hessian": ["F32", [cols, cols], pack(hessian)]})
        write_safetensors(self.dir / "a.safetensors", {"a.A": ["F32", [cols, cols], pack([h / 2 for h in hessian])]})
        errors = []
        for stats in "xha":
            report = self.run_json("quantize", self.dir / "w.safetensors", "--stats", self.dir / f"{stats}.safetensors",
                                   "--out", self.dir / f"out_{stats}.safetensors", "--scheme", "int4", "--group-size", "32")
            errors.append(report["results"]["layers"][0]["relative_error"])
        self.assertAlmostEqual(errors[0] / errors[1], 1, delta=1e-4)
        self.assertAlmostEqual(errors[2] / errors[1], 1, delta=1e-4)

    def test_bad_statistics(self):
        weights, out = LAYERS / "weights.safetensors", self.dir / "out.safetensors"
        self.fails("quantize", weights, "--out", out, status=2, says="--stats")
        stats = read_safetensors(LAYERS / "stats.safetensors")
        name = "stories.L4.o_proj.hessian"

        def with_stats(change, status, says):
            changed = {key: [dtype, shape, bytearray(data)] for key, (dtype, shape, data) in stats.items()}
            change(changed)
            write_safetensors(self.dir / "stats.safetensors", changed)
            self.fails("quantize", weights, "--stats", self.dir / "stats.safetensors", "--out", out, "--scheme", "mxfp4",
                       "--overwrite", status=status, says=says)

        nan = b"\x00\x00\xc0\x7f"
        with_stats(lambda s: s.pop(name), 3, ["neither stories.L4.o_proj.hessian"])
        with_stats(lambda s: s[name].__setitem__(1, [32, 128]), 3, [name, "[32, 128]", "64 inputs"])
        with_stats(lambda s: s[name][2].__setitem__(slice(0, 4), nan), 4, ["stories.L4.o_proj", "not finite in 1 of 4096"])
        with_stats(lambda s: s[name][2].__setitem__(slice(4, 8), b"\x00\x00\x80\x47"), 3, [name, "not symmetric"])
        self.assertFalse(out.exists())

    def test_killed_run_leaves_nothing_under_the_final_name(self):
        for number, status in ((signal.SIGINT, 130), (signal.SIGKILL, -9)):
            out = self.dir / "killed"
            process = subprocess.Popen([BINARY, *map(str, QUANTIZE[:-2]), "--out", out], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            while process.poll() is None and not any(self.dir.glob(".killed*")):
                time.sleep(0.005)
            process.send_signal(number)
            self.assertIn(process.wait(), (status, 0))
            if process.returncode:
                self.assertFalse(out.exists())
        self.run_curvq(*QUANTIZE, "--out", out, "--overwrite")
        self.assertEqual([path.name for path in self.dir.iterdir()], ["killed"])  # what SIGKILL left is gone

    def test_output_must_not_be_the_model(self):
        model = self.copy_model("stories260K")
        before = {path.name: path.read_bytes() for path in model.iterdir()}
        self.fails("quantize", model, "--method", "rtn", "--on-indivisible", "keep", "--out", model, status=2, says=str(model))
        self.assertEqual({path.name: path.read_bytes() for path in model.iterdir()}, before)

    def test_fewer_layers_than_the_checkpoint_has_are_told(self):
        model = self.copy_model("stories260K")
        config = json.loads((model / "config.json").read_text())
        config["num_hidden_layers"] = 3
        (model / "config.json").write_text(json.dumps(config))
        result = self.run_curvq("eval", model, "--data", TOKENS / "evaluation.safetensors", "--num-samples", "1")
        self.assertIn("model.layers.3.", result.stderr)
        self.assertIn("num_hidden_layers is 3", result.stderr)

    def test_data_that_does_not_fit(self):
        def eval_fails(source, status, says):
            self.fails("eval", STORIES, "--data", source, status=status, says=says)

        eval_fails(self.dir / "none.txt", 2, "none.txt")
        eval_fails(self.write("empty.txt", ""), 3, "empty.txt")
        eval_fails(self.write("short.txt", "Once"), 3, "short.txt")
        eval_fails(self.write("latin1.txt", b"caf\xe9 " * 1000), 3, "UTF-8")
        ids = self.dir / "ids.safetensors"
        write_safetensors(ids, {"input_ids": ["I32", [1, 4], b"\x01\x00\x00\x00" * 3 + b"\x00\x02\x00\x00"]})
        eval_fails(ids, 3, ["512"])
        eval_fails(f"{ids}:nothing", 3, ["nothing", "input_ids"])
