"""TorchScript files: inspect, quantize, eval and compare, with the digits nets; their tensors are read without LibTorch."""

import array
import json
import math
import struct
import unittest

from support import MODELS, CliTest, read_safetensors, to_floats, write_safetensors
from torchscript import read_torchscript, rewrite_archive

DIGITS = MODELS.parent / "digits"
MLP, CNN, DATA = DIGITS / "digits_mlp_script.pt", DIGITS / "digits_cnn_script.pt", DIGITS / "data.safetensors"
REGRESSION = MODELS.parent / "curvature" / "mlp_relu_mse"
ONE_THREAD = ("--threads", "1")
SEEN = 1024  # samples that rounding sees; the others judge


def rows_of(tensors, name, first, count):
    dtype, shape, data = tensors[name]
    size = len(data) // shape[0]
    return [dtype, [count, *shape[1:]], bytearray(data[first * size : (first + count) * size])]


def net(tensors, x, activation=math.tanh):
    """Outputs of fc1, fc2, fc3 for one sample, in float64."""
    for layer in ("fc1", "fc2", "fc3"):
        (rows, cols), weight = tensors[layer + ".weight"].shape, to_floats(*tensors[layer + ".weight"][::2])
        bias = to_floats(*tensors[layer + ".bias"][::2])
        x = [sum(weight[r * cols + c] * x[c] for c in range(cols)) + bias[r] for r in range(rows)]
        if layer != "fc3":
            x = [activation(value) for value in x]
    return x


def log_softmax(values):
    top = max(values)
    norm = top + math.log(sum(math.exp(value - top) for value in values))
    return [value - norm for value in values]


class TorchScript(CliTest):
    def setUp(self):
        super().setUp()
        self.tensors = read_safetensors(DATA)
        total = self.tensors["x"][1][0]
        self.calibration = self.samples("calibration.safetensors", 0, SEEN)
        self.others = self.samples("others.safetensors", SEEN, total - SEEN)

    def samples(self, name, first, count):
        path = self.dir / name
        write_safetensors(path, {key: rows_of(self.tensors, key, first, count) for key in ("x", "y")})
        return path

    def quantize(self, model, *more, out="out"):
        return self.run_json("quantize", model, "--out", self.dir / out, "--overwrite", *more, *ONE_THREAD)["results"]

    def evaluate(self, model, reference):
        return self.run_json("eval", model, "--data", self.others, "--reference", reference, *ONE_THREAD)["results"]


class Inspect(TorchScript):
    def test_layers_and_tensors(self):
        results = self.run_json("inspect", CNN)["results"]
        self.assertEqual(results["architecture"]["family"], "torchscript")
        self.assertIn("Tensor x", results["architecture"]["forward"])
        layers = {layer["name"]: layer for layer in results["architecture"]["layers"]}
        self.assertEqual(list(layers), ["conv1", "conv2", "fc1", "fc2"])
        self.assertEqual(layers["conv2"]["weight_shape"], [32, 16, 3, 3])
        self.assertEqual((layers["conv2"]["shape"], layers["conv2"]["stride"], layers["conv2"]["groups"]), ([32, 144], [2, 2], 1))
        self.assertEqual((layers["fc1"]["operator"], layers["fc1"]["shape"]), ("linear", [64, 512]))
        self.assertEqual(results["parameters"], 38282)
        self.assertEqual({tensor["name"]: tensor["shape"] for tensor in results["tensors"]},
                         {name: tensor.shape for name, tensor in read_torchscript(CNN).items()})
        text = self.run_curvq("inspect", CNN).stdout
        for part in ["TorchScript", "conv2d", "32 x 16 x 3 x 3", "38,282 parameters"]:
            self.assertIn(part, text)


class Quantize(TorchScript):
    def test_gptq_is_better_than_round_to_nearest_on_other_data(self):
        for model, schemes in ((MLP, ("nvfp4", "mxfp4", "int4")), (CNN, ("nvfp4", "mxfp4", "int4"))):
            original = self.evaluate(model, model)
            self.assertEqual((original["kl_mean"], original["top1_agreement"]), (0, 1))
            for scheme in schemes:
                with self.subTest(model=model.name, scheme=scheme):
                    options = ["--scheme", scheme, "--on-indivisible", "keep", "--calibration", self.calibration]
                    if scheme == "int4":
                        options += ["--group-size", "32"]
                    divergence = {}
                    for method in ("rtn", "gptq"):
                        results = self.quantize(model, *options, "--method", method, out=method)
                        divergence[method] = self.evaluate(self.dir / method / "model.pt", model)
                    self.assertLess(divergence["gptq"]["kl_mean"], divergence["rtn"]["kl_mean"])
                    # 413 other samples: no more than two of a hundred change sides.
                    self.assertGreater(divergence["gptq"]["accuracy"], original["accuracy"] - 0.02)
                    for layer in results["layers"]:
                        self.assertLess(layer["relative_error"], layer["rtn_relative_error"], layer["name"])

    def test_all_methods_and_schemes_write_what_they_say(self):
        original = read_torchscript(CNN)
        for scheme in ("nvfp4", "mxfp4", "int4", "int8", "fp8"):
            for method in ("rtn", "gptq", "obd", "obs"):
                with self.subTest(scheme=scheme, method=method):
                    options = ["--scheme", scheme, "--method", method, "--calibration", self.calibration, "--num-samples", "64",
                               "--on-indivisible", "keep"]
                    if scheme == "int4":
                        options += ["--group-size", "16"]
                    results = self.quantize(CNN, *options)
                    self.check_output(self.dir / "out", CNN, original, results)

    def check_output(self, out, model, original, results):
        """The written TorchScript holds the values of the packed layers, and everything else is as it was."""
        written = read_torchscript(out / "model.pt")
        self.assertEqual({name: (t.dtype, t.shape) for name, t in written.items()},
                         {name: (t.dtype, t.shape) for name, t in original.items()})
        quantized = {layer["name"] + ".weight" for layer in results["layers"]}
        kept = {layer["name"] + ".weight" for layer in results["kept"]}
        self.assertEqual(quantized | kept, {name for name in original if name.endswith("weight")})
        stored = read_safetensors(out / "model.safetensors")
        for name, tensor in written.items():
            if name in quantized:
                self.assertNotEqual(tensor.data, original[name].data)
            else:
                self.assertEqual(tensor.data, original[name].data)
                self.assertEqual(bytes(stored[name][2]), tensor.data)
        # Dequantized by the reader of model directories, which does not know TorchScript.
        compared = {t["name"]: t for t in self.run_json("compare", out / "model.pt", out)["results"]["tensors"]}
        self.assertEqual(set(compared), set(original))
        for name in quantized:
            self.assertEqual(compared[name]["max_abs_error"], 0, name)
        against = {t["name"]: t for t in self.run_json("compare", model, out / "model.pt")["results"]["tensors"]}
        for name in quantized:
            self.assertGreater(against[name]["relative_error"], 0, name)
        config = json.loads((out / "config.json").read_text())
        self.assertIn("quantization_config", config)
        convolutions = config["torchscript"]["convolutions"]
        self.assertEqual(convolutions, {name[:-7]: original[name].shape for name in quantized if "conv" in name})
        self.assertEqual(json.loads((out / "quantization_report.json").read_text())["results"]["layers"][0]["name"],
                         results["layers"][0]["name"])

    def test_captured_inputs_are_those_of_the_layers(self):
        """Hessians from outside, inputs computed in float64, give the same rounding (but for ties)."""
        count = 128
        data = self.samples("few.safetensors", 0, count)
        self.quantize(MLP, "--scheme", "nvfp4", "--calibration", data, "--capture", "float")
        tensors = read_torchscript(MLP)
        x = to_floats("F32", rows_of(self.tensors, "x", 0, count)[2])
        inputs = [x[64 * i : 64 * (i + 1)] for i in range(count)]
        layers, stats = {}, {}
        for layer in ("fc1", "fc2", "fc3"):
            tensor = tensors[layer + ".weight"]
            layers[layer + ".weight"] = list(tensor)
            flat = array.array("f", [value for row in inputs for value in row])
            stats[layer + ".inputs"] = ["F32", [count, len(inputs[0])], flat.tobytes()]
            weight, bias = to_floats("F32", tensor.data), to_floats("F32", tensors[layer + ".bias"].data)
            cols = tensor.shape[1]
            inputs = [[math.tanh(sum(weight[r * cols + c] * row[c] for c in range(cols)) + bias[r]) for r in range(tensor.shape[0])]
                      for row in inputs]
        write_safetensors(self.dir / "layers.safetensors", layers)
        write_safetensors(self.dir / "stats.safetensors", stats)
        self.run_curvq("quantize", self.dir / "layers.safetensors", "--stats", self.dir / "stats.safetensors", "--scheme", "nvfp4",
                       "--out", self.dir / "bare.safetensors", *ONE_THREAD)
        ours, theirs = (read_safetensors(path) for path in (self.dir / "out" / "model.safetensors", self.dir / "bare.safetensors"))
        for layer in ("fc1", "fc2", "fc3"):
            for part in ("weight_scale", "weight_global_scale"):
                self.assertEqual(ours[f"{layer}.{part}"], theirs[f"{layer}.{part}"])
            a, b = ours[layer + ".weight_packed"][2], theirs[layer + ".weight_packed"][2]
            self.assertLess(sum(x != y for x, y in zip(a, b)), 0.01 * len(a), layer)
        # And the same file of statistics is taken for the TorchScript itself.
        self.quantize(MLP, "--scheme", "nvfp4", "--stats", self.dir / "stats.safetensors", out="by-stats")
        self.assertEqual(read_safetensors(self.dir / "by-stats" / "model.safetensors")["fc2.weight_packed"], theirs["fc2.weight_packed"])

    def test_statistics_of_curvq_hessian(self):
        stats = self.dir / "stats.safetensors"
        self.run_curvq("hessian", CNN, "--data", self.calibration, "--what", "kfac", "--stats", stats, *ONE_THREAD)
        common = ("--scheme", "int4", "--group-size", "16", "--on-indivisible", "keep")
        errors = [{layer["name"]: layer["relative_error"] for layer in self.quantize(CNN, *common, *how)["layers"]}
                  for how in (("--stats", stats), ("--calibration", self.calibration, "--capture", "float"))]
        for name, error in errors[0].items():
            self.assertAlmostEqual(error / errors[1][name], 1, delta=0.02)
        self.fails("quantize", MLP, "--stats", stats, "--out", self.dir / "none", status=3, says=["stats.safetensors"])

    def test_rules_patterns_and_dry_run(self):
        plan = ("--rule", "conv* = int8", "--ignore", "fc2", "--scheme", "mxfp4", "--method", "rtn")
        results = self.quantize(CNN, *plan)
        self.assertEqual({layer["name"]: layer["scheme"].split()[0] for layer in results["layers"]},
                         {"conv1": "int8", "conv2": "int8", "fc1": "mxfp4"})
        self.assertEqual([layer["reason"] for layer in results["kept"]], ["ignored by 'fc2'"])
        self.fails("quantize", CNN, *plan, "--ignore", "fc9", "--out", self.dir / "none", status=2, says=["fc9", "conv1"])
        self.fails("quantize", CNN, "--scheme", "nvfp4", "--method", "rtn", "--out", self.dir / "none", status=2,
                   says=["conv1", "9 inputs", "--on-indivisible"])
        dry = self.run_json("quantize", CNN, *plan, "--dry-run")["results"]
        self.assertEqual(dry["quantized_weights"], 9 * 16 + 144 * 32 + 512 * 64)
        self.assertFalse((self.dir / "none").exists())

    def test_a_torchscript_file_alone(self):
        self.quantize(MLP, "--method", "rtn", out="rounded.pt")
        self.quantize(MLP, "--method", "rtn", out="both")
        self.assertEqual(read_torchscript(self.dir / "rounded.pt"), read_torchscript(self.dir / "both" / "model.pt"))

    def test_same_bytes_again(self):
        for out in ("one", "two"):
            self.quantize(CNN, "--scheme", "int8", "--calibration", self.calibration, out=out)
        for name in ("model.pt", "model.safetensors", "config.json"):
            self.assertEqual((self.dir / "one" / name).read_bytes(), (self.dir / "two" / name).read_bytes(), name)


class Eval(TorchScript):
    def test_classes_against_float64(self):
        self.quantize(MLP, "--scheme", "mxfp4", "--method", "rtn")
        nets = [read_torchscript(path) for path in (self.dir / "out" / "model.pt", MLP)]
        count = 40
        found = self.run_json("eval", self.dir / "out" / "model.pt", "--reference", MLP, "--data", self.others, "--num-samples", count,
                              *ONE_THREAD)["results"]
        others = read_safetensors(self.others)
        x, y = to_floats("F32", others["x"][2]), struct.unpack(f"<{others['y'][1][0]}q", bytes(others["y"][2]))
        logs = [[log_softmax(net(tensors, x[64 * i : 64 * (i + 1)])) for i in range(count)] for tensors in nets]
        loss, reference_loss = (-sum(log[i][y[i]] for i in range(count)) / count for log in logs)
        best = [[log[i].index(max(log[i])) for i in range(count)] for log in logs]
        kl = sum(math.exp(p) * (p - q) for i in range(count) for q, p in zip(logs[0][i], logs[1][i])) / count
        # Float32 forward passes of three layers.
        self.assertAlmostEqual(found["loss_value"], loss, delta=1e-5)
        self.assertAlmostEqual(found["reference_loss"], reference_loss, delta=1e-5)
        self.assertAlmostEqual(found["kl_mean"], kl, delta=1e-5)
        self.assertAlmostEqual(found["accuracy"], sum(best[0][i] == y[i] for i in range(count)) / count, places=12)
        self.assertAlmostEqual(found["top1_agreement"], sum(a == b for a, b in zip(*best)) / count, places=12)
        self.assertEqual((found["loss"], found["samples"], found["terms"]), ("cross_entropy", count, count))

    def test_values_against_float64(self):
        model, data = REGRESSION / "logits.pt", REGRESSION / "data.safetensors"
        found = self.run_json("eval", model, "--data", data, "--reference", model)["results"]
        tensors, samples = read_torchscript(model), read_safetensors(data)
        (n, width), outputs = samples["x"][1], samples["y"][1][1]
        x, y = to_floats(samples["x"][0], samples["x"][2]), to_floats(samples["y"][0], samples["y"][2])
        relu = lambda value: max(value, 0)
        squares = [(a - b) ** 2 for i in range(n)
                   for a, b in zip(net(tensors, x[width * i : width * (i + 1)], relu), y[outputs * i : outputs * (i + 1)])]
        self.assertAlmostEqual(found["loss_value"], sum(squares) / len(squares), places=12)
        self.assertEqual((found["loss"], found["squared_difference"]), ("mse", 0))
        self.assertNotIn("accuracy", found)

    def test_bounds(self):
        arguments = ("eval", MLP, "--data", self.others, "--reference", MLP)
        self.run_curvq(*arguments, "--fail-if", "accuracy<0.5", "--fail-if", "kl_mean>0.1")
        self.run_curvq(*arguments, "--fail-if", "accuracy<1.5", status=6)
        self.fails(*arguments, "--fail-if", "perplexity>3", status=2, says="perplexity")
        self.fails("eval", MLP, "--data", self.others, "--fail-if", "kl_mean>3", status=2, says="--reference")


class Failures(TorchScript):
    def quantize_fails(self, model, *more, status, says):
        self.fails("quantize", model, "--out", self.dir / "none", *more, status=status, says=says)
        self.assertFalse((self.dir / "none").exists())
        self.assertEqual([path for path in self.dir.iterdir() if ".curvq-" in path.name], [])

    def test_files_that_are_no_torchscript(self):
        whole = MLP.read_bytes()
        cut = [self.write(f"cut{share}.pt", whole[: len(whole) * share // 100]) for share in (1, 30, 60, 99)]
        # A state dictionary of torch.save is a zip with a pickle, too, but without code.
        pickled = self.dir / "pickled.pt"
        rewrite_archive(MLP, pickled, lambda name, data: b"\x80\x02}." if name == "data.pkl" else data)
        for path in (self.write("text.pt", "no zip"), self.write("empty.pt", ""), self.write("pickle.pt", b"\x80\x02}q\x00."), pickled,
                     *cut):
            with self.subTest(path.name):
                self.quantize_fails(path, "--method", "rtn", status=3, says=[path.name, "TorchScript"])
                for command in (("inspect", path), ("compare", path, MLP), ("eval", path, "--data", self.others)):
                    self.fails(*command, status=3, says=[path.name, "TorchScript"])
        for command in (("inspect", self.dir / "none.pt"), ("quantize", self.dir / "none.pt", "--out", self.dir / "none", "--method", "rtn"),
                        ("eval", self.dir / "none.pt", "--data", self.others)):
            self.fails(*command, status=2, says=["none.pt", "no such file"])

    def test_damaged_parts(self):
        """Whatever a part of the archive holds, there is an answer or one error."""
        import random
        import zipfile

        rng = random.Random(5)
        names = [info.filename.split("/", 1)[1] for info in zipfile.ZipFile(MLP).infolist()]
        for part in names:
            def change(name, data):
                if name != part or not data:
                    return data
                at = rng.randrange(len(data))
                return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]

            path = self.dir / "damaged.pt"
            rewrite_archive(MLP, path, change)
            with self.subTest(part):
                result = self.run_any("quantize", path, "--out", self.dir / "damaged", "--overwrite", "--method", "rtn")
                self.assertIn(result.returncode, (0, 3, 4), result.stderr)
                if result.returncode:
                    self.assertIn("damaged.pt", result.stderr)

    def run_any(self, *arguments):
        import subprocess
        from support import BINARY

        return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)

    def test_weights_that_are_not_finite(self):
        nan = struct.pack("<f", math.nan)
        path = self.dir / "nan.pt"
        rewrite_archive(MLP, path, lambda name, data: data[:8] + nan + data[12:] if name == "data/0" else data)
        self.quantize_fails(path, "--method", "rtn", status=4, says=["nan.pt", "element 2"])

    def test_data(self):
        def data(name, **changed):
            tensors = {key: rows_of(self.tensors, key, 0, 32) for key in ("x", "y")}
            for key, value in changed.items():
                if value is None:
                    del tensors[key]
                else:
                    tensors[key] = value
            write_safetensors(self.dir / name, tensors)
            return self.dir / name

        x = rows_of(self.tensors, "x", 0, 32)
        nan = [x[0], x[1], x[2][:400] + bytearray(struct.pack("<f", math.nan)) + x[2][404:]]
        cases = [
            ("wide.safetensors", {"x": ["F32", [32, 65], bytes(4 * 32 * 65)]}, 3, [MLP.name, "65"]),
            ("integers.safetensors", {"x": ["I64", [32, 64], bytes(8 * 32 * 64)]}, 3, [MLP.name]),
            ("float8.safetensors", {"x": ["F8_E4M3", [32, 64], bytes(32 * 64)]}, 3, ["float8.safetensors", "F8_E4M3"]),
            ("nan.safetensors", {"x": nan}, 4, ["x", "finite"]),
            ("empty.safetensors", {"x": ["F32", [0, 64], b""]}, 3, ["empty.safetensors", "x"]),
            ("no-x.safetensors", {"x": None}, 3, ["no-x.safetensors", "x"]),
        ]
        for name, changed, status, says in cases:
            with self.subTest(name):
                path = data(name, **changed)
                self.quantize_fails(MLP, "--calibration", path, status=status, says=says)
                self.fails("eval", MLP, "--data", path, status=status, says=says)
        self.fails("eval", MLP, "--data", data("no-y.safetensors", y=None), status=3, says=["no-y.safetensors", "y"])
        self.fails("eval", MLP, "--data", data("few.safetensors", y=["I64", [3], bytes(24)]), status=2, says=["[32, 64]", "[3]"])
        classes = ["I64", [32], struct.pack("<q", 10) * 32]
        self.fails("eval", MLP, "--data", data("classes.safetensors", y=classes), status=2, says=["class 10", "10 classes"])
        targets = ["F32", [32, 3], bytes(4 * 96)]
        self.fails("eval", MLP, "--data", data("values.safetensors", y=targets), status=2, says=["[32, 3]", "[32, 10]"])
        self.quantize_fails(MLP, "--calibration", self.write("text.txt", "words"), status=3, says=["text.txt", "model directory"])
        self.quantize_fails(MLP, "--calibration", self.calibration, "--num-samples", "9999", status=2, says=["9999", "1024 samples"])

    def test_options_that_need_a_model_directory(self):
        self.quantize_fails(MLP, status=2, says=["--calibration", "--stats"])
        for option in (("--state", self.dir / "state"), ("--guard", "held-out"), ("--output-factor", "fisher"),
                       ("--token-weights", "gradient"), ("--max-length", "5"), ("--plan", self.dir / "plan.json"),
                       ("--activations", "int8"), ("--input-format", "nvfp4")):
            self.quantize_fails(MLP, "--calibration", self.calibration, *option, status=2, says="model director")
        self.quantize_fails(MLP, "--calibration", self.calibration, "--stats", self.dir / "s", status=2, says="--calibration")
        self.fails("eval", MLP, "--data", self.others, "--engine", "packed", status=2, says="--engine")
        (self.dir / "full").mkdir()
        self.write("full/file", "")
        self.fails("quantize", MLP, "--method", "rtn", "--out", self.dir / "full", status=2, says=["full"])


if __name__ == "__main__":
    unittest.main()
