"""The option files in configs/ and the kinds of options that only curvq quantize has."""

import json
import pathlib
import shutil
import tempfile
import unittest

from support import MODELS, CliTest

MODEL = MODELS / "llama_gqa_tied"
DATA = MODEL / "logits.safetensors"
CONFIGS = pathlib.Path(__file__).resolve().parent.parent.parent / "configs"


class Configs(CliTest):
    def test_every_config_gives_a_sound_checkpoint(self):
        names = sorted(path.stem for path in CONFIGS.glob("*.ini"))
        self.assertEqual(names, ["fp8", "int4", "int8", "mxfp4", "nvfp4"])
        for name in names:
            with self.subTest(name):
                out = self.dir / name
                more = ["--group-size", "32"] if name == "int4" else []  # 128 does not divide 64
                result = self.run_json("quantize", MODEL, "--config", CONFIGS / f"{name}.ini", "--out", out,
                                       "--calibration", DATA, "--threads", "1", *more)
                self.assertEqual(result["options"]["scheme"], name)
                self.assertEqual(len(result["results"]["layers"]), 14)
                report = json.loads((out / "quantization_report.json").read_text())
                self.assertEqual(report["options"]["scheme"], name)
                verified = self.run_json("verify", out)["results"]
                self.assertEqual((verified["ok"], verified["quantized_layers"]), (True, 14))


class Kinds(CliTest):
    def options(self, *arguments):
        return self.run_json("quantize", MODEL, "--dry-run", "--method", "rtn", "--threads", "1", *arguments)["options"]

    def option_fails(self, *arguments, says, status=2):
        self.fails("quantize", MODEL, "--dry-run", "--method", "rtn", *arguments, status=status, says=says)

    def test_presets_and_options_that_win_over_them(self):
        def rounding(*arguments):
            return self.run_json("quantize", MODEL, "--dry-run", "--calibration", DATA, "--group-size", "32", "--scheme", "int4",
                                 "--threads", "1", *arguments)["results"]["rounding"]
        plain = {"method": "gptq", "scale_search": False, "sweeps": 0, "token_weights": "none", "output_factor": "none", "held_out": 0.0, "input_correction": 0.0, "residual_correction": 0.0,
                 "activations": "int8", "candidates": 1, "inverse": "cholesky"}
        best = plain | {"activations": "int16", "scale_search": True, "sweeps": 2, "token_weights": "gradient", "output_factor": "fisher", "held_out": 0.2, "input_correction": 1.0, "residual_correction": 0.5}
        self.assertEqual(rounding(), plain)
        self.assertEqual(rounding("--preset", "fast")["method"], "rtn")
        self.assertEqual(rounding("--preset", "fast", "--method", "gptq"), plain)
        self.assertEqual(rounding("--preset", "best"), best)
        self.assertEqual(rounding("--preset", "best", "--sweeps", "5", "--scale-search", "none"),
                         best | {"sweeps": 5, "scale_search": False})
        self.assertEqual(rounding("--preset", "best", "--capture", "float"),
                         best | {"input_correction": 0.0, "residual_correction": 0.0, "activations": "float32"})
        self.fails("quantize", MODEL, "--dry-run", "--calibration", DATA, "--capture", "float", "--input-correction", "1",
                   status=2, says="sequential")

    def test_what_is_not_a_result_is_never_overwritten(self):
        with tempfile.TemporaryDirectory() as folder:
            model, other = pathlib.Path(folder, "model"), pathlib.Path(folder, "thesis")
            shutil.copytree(MODEL, model)
            other.mkdir()
            (other / "thesis.txt").write_text("mine")
            rtn = ["--method", "rtn", "--on-indivisible", "keep", "--overwrite"]
            for out in [model, model / "nvfp4", pathlib.Path(folder)]:
                self.fails("quantize", model, "--out", out, *rtn, status=2, says=["the original model", "another directory"])
            self.fails("quantize", model, "--out", other, *rtn, status=2, says=["thesis", "not written by curvq"])
            self.assertEqual((other / "thesis.txt").read_text(), "mine")
            self.assertTrue((model / "model.safetensors").exists())
            for _ in range(2):
                self.run_json("quantize", model, "--out", pathlib.Path(folder, "out"), *rtn)

    def test_contradictions_and_missing_files(self):
        self.fails("quantize", MODEL, "--dry-run", "--method", "rtn", "--preset", "best", status=2, says="--preset best")
        self.fails("quantize", MODEL, "--dry-run", "--calibration", "nowhere.txt", status=2, says="nowhere.txt: no such file")
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder, "model")
            shutil.copytree(MODEL, model, ignore=shutil.ignore_patterns("tokenizer.json"))
            text = pathlib.Path(folder, "text.txt")
            text.write_text("some text")
            for arguments in [["quantize", model, "--dry-run", "--calibration", text], ["generate", model, "--prompt", "x"]]:
                self.fails(*arguments, status=3, says=["tokenizer.json: missing", "token ids"])

    def test_numbers(self):
        self.assertEqual(self.options("--damping", "1e-3")["damping"], 0.001)
        for bad in ["x", "-1", "nan", "0,1", "1e999"]:
            self.option_fails("--damping", bad, says=[f"--damping {bad}", "a number from 0.0 to"])

    def test_sizes(self):
        for text, value in [("2097152", 2 << 20), ("512M", 512 << 20), ("1.5GiB", 3 << 29), ("5GB", 5 * 10**9)]:
            self.assertEqual(self.options("--max-shard-size", text)["max-shard-size"], value)
        for bad in ["5X", "-1", "1.5", "5 GB", "GB"]:
            self.option_fails("--max-shard-size", bad, says=[f"--max-shard-size {bad}", "KB, MB, GB"])

    def test_switch_has_two_spellings_and_the_command_line_wins(self):
        path = self.write("a.ini", "asymmetric = true\nscheme = int4\ngroup-size = 32\n")
        self.assertIs(self.options("--config", path)["symmetric"], False)
        self.assertIs(self.options("--config", path, "--symmetric")["symmetric"], True)
        self.option_fails("--symmetric", "--asymmetric", says="contradicts --symmetric")

    def test_list_on_the_command_line_replaces_that_of_a_file(self):
        one = self.write("one.ini", "ignore = *.q_proj\nignore = *.k_proj\n")
        two = self.write("two.ini", "ignore = *.up_proj\n")
        self.assertEqual(self.options("--config", one)["ignore"], ["*.q_proj", "*.k_proj"])
        self.assertEqual(self.options("--config", one, "--config", two)["ignore"], ["*.up_proj"])
        self.assertEqual(self.options("--config", one, "--ignore", "*.v_proj")["ignore"], ["*.v_proj"])

    def test_device(self):
        self.assertEqual(self.options("--device", "cpu")["device"], "cpu")
        self.option_fails("--device", "gpu", says=["--device gpu", "auto, cpu, cuda"])
        self.option_fails("--device", "cuda:0", says=["--device cuda:0", "no CUDA"], status=3)

    def test_option_without_a_value_or_default(self):
        self.fails("quantize", MODEL, "--method", "rtn", status=2, says="quantize needs --out DIR")


if __name__ == "__main__":
    unittest.main()
