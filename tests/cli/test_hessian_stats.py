"""curvq hessian --what kfac, --stats and --merge, and curvq quantize --stats of a model directory."""

import json
import math
import struct
import unittest

from support import MODELS, CliTest, edit_tensors, read_safetensors, to_floats, write_safetensors

try:
    import safetensors
except ImportError:
    safetensors = None

CURVATURE = MODELS.parent / "curvature"
ONE_THREAD = ("--threads", "1")
LLAMA = CURVATURE / "llama_tiny_ce"
STORIES = MODELS / "stories260K"
IDS = STORIES / "wt2_ids_32x256.safetensors"
KEEP = ("--on-indivisible", "keep")  # down_proj
UP = "model.layers.0.mlp.up_proj"


def net(name):
    return (CURVATURE / name / "logits.pt", "--data", CURVATURE / name / "data.safetensors", "--loss",
            "mse" if name.endswith("mse") else "cross_entropy")


def golden(name, tensor):
    dtype, shape, data = read_safetensors(CURVATURE / name / "golden.safetensors")[tensor]
    return shape, to_floats(dtype, data)


def trace(shape, values):
    return sum(values[i * shape[1] + i] for i in range(shape[0]))


def metadata_of(path):
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8 : 8 + length])["__metadata__"]


class Kfac(CliTest):
    def check(self, name, arguments, share="expand"):
        results = self.run_json("hessian", *arguments, "--what", "kfac", "--exact", *ONE_THREAD)["results"]
        self.assertTrue(results["layers"])
        for layer in results["layers"]:
            g_name = f"kfac.{layer['name']}.G_{share}"
            a = trace(*golden(name, f"kfac.{layer['name']}.A_{share}"))
            g = trace(*golden(name, g_name))
            for key, expected in (("trace_a", a), ("trace_g", g), ("kfac_trace", a * g)):
                self.assertAlmostEqual(layer[key] / expected, 1, places=9)
            low, high = layer["eigenvalues_g"]
            self.assertLessEqual(high, g * (1 + 1e-9))
            self.assertGreater(low, -1e-9 * high)
            self.assertGreaterEqual(layer["condition"], 1)
            damping = layer["damping"]
            cells = layer["parameters"]
            self.assertAlmostEqual(damping["a"] * damping["g"] / (0.01 * a * g / cells), 1, places=9)
        return results

    def test_torchscript(self):
        for name in ("mlp_tanh_ce", "deep_linear_mse", "llama_tiny_ce", "softmax_n1"):
            with self.subTest(net=name):
                results = self.check(name, net(name))
        conv = self.check("conv_tanh_ce", net("conv_tanh_ce"))
        self.assertEqual([(layer["name"], layer["samples"]) for layer in conv["layers"]], [("conv1", 90), ("conv2", 40), ("fc", 10)])
        self.check("conv_tanh_ce", (*net("conv_tanh_ce"), "--weight-sharing", "reduce", "--parameters", "conv*"), "reduce")

    def test_model_directory(self):
        results = self.check("llama_tiny_ce", (LLAMA, "--data", LLAMA / "data.safetensors", "--dtype", "float64"))
        self.assertEqual(len(results["layers"]), 8)
        self.assertEqual(results["kfac"]["reduction"], "mean over loss terms")
        self.assertEqual(results["kfac"]["labels"], "exact")
        self.assertEqual((results["samples"], results["loss_terms"], results["dtype"]), (4, 24, "float64"))

    def test_drawn_labels(self):
        value = lambda *more: self.run_json("hessian", *net("mlp_tanh_ce"), "--what", "kfac", *more,
                                            *ONE_THREAD)["results"]["layers"][0]["trace_g"]
        self.assertEqual(value("--seed", 1), value("--seed", 1))
        self.assertNotEqual(value("--seed", 1), value("--seed", 2))
        exact = value("--exact")
        # |g|^2 of a term is at most 2 |J|^2: an error above a half would need a thousandfold spread.
        self.assertAlmostEqual(value("--label-draws", 3000) / exact, 1, delta=0.05)

    def test_beside_other_statistics(self):
        results = self.run_json("hessian", *net("conv_tanh_ce"), "--what", "trace,kfac", *ONE_THREAD)["results"]
        self.assertEqual([layer["name"] for layer in results["layers"]], ["conv1", "conv2", "fc"])
        for layer in results["layers"]:
            self.assertIn("stderr", layer["trace"])
            self.assertGreater(layer["kfac_trace"], 0)

    def test_text(self):
        text = self.run_curvq("hessian", LLAMA, "--data", LLAMA / "data.safetensors", "--what", "kfac", *ONE_THREAD).stdout
        for part in ("K-FAC factors of the fisher matrix", "mean over 24 loss terms", "1 labels drawn a term", "tr A tr G", UP):
            self.assertIn(part, text)

    def test_some_layers_of_a_model_directory(self):
        layers = self.run_json("hessian", LLAMA, "--data", LLAMA / "data.safetensors", "--what", "kfac", "--parameters",
                               "*.mlp.*", "--ignore", "*gate*", *ONE_THREAD)["results"]["layers"]
        self.assertEqual([layer["name"][len("model.layers.0.mlp."):] for layer in layers], ["up_proj", "down_proj"])

    def test_failures(self):
        tokens = ("--data", f"{IDS}:calib_ids", "--num-samples", 1)
        self.fails("hessian", *net("mlp_tanh_ce"), "--what", "kfac", "--label-draws", 0, status=2, says="--label-draws")
        self.fails("hessian", STORIES, *tokens, "--what", "kfac", "--exact", status=2, says=["512 outputs", "255 loss terms"])
        self.fails("hessian", STORIES, *tokens, "--what", "kfac", "--weight-sharing", "reduce", status=2, says="--weight-sharing")
        self.fails("hessian", STORIES, *tokens, "--what", "kfac", "--parameters", "nothing*", status=2, says="nothing*")
        self.fails("hessian", STORIES, *tokens, "--what", "kfac", "--ignore", "*", status=2, says="every linear layer")
        self.fails("hessian", CURVATURE / "mlp_tanh_ce" / "loss.pt", *net("mlp_tanh_ce")[1:], "--what", "kfac", status=3, says="loss.pt")

    def test_a_layer_that_overflows_is_named(self):
        model = self.copy_model("llama_gqa_tied")

        def blow_up(tensors):
            for name in ("model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.gate_proj.weight"):
                dtype, shape, data = tensors[name]
                self.assertEqual(dtype, "BF16")
                data[:] = struct.pack("<f", 1e30)[2:] * (len(data) // 2)

        edit_tensors(model, blow_up)
        ids = read_safetensors(MODELS / "llama_gqa_tied" / "logits.safetensors")["input_ids"]
        data = self.dir / "ids.safetensors"
        write_safetensors(data, {"input_ids": ids})
        self.fails("hessian", model, "--data", data, "--what", "kfac", *ONE_THREAD, status=4,
                   says=["model.layers.1.mlp.down_proj", "not finite"])


class StatsFile(CliTest):
    def write_stats(self, *arguments, name="S.safetensors", status=0):
        path = self.dir / name
        self.run_curvq("hessian", *arguments, "--stats", path, *ONE_THREAD, status=status)
        return path

    def test_holds_factors_by_the_names_of_the_design(self):
        path = self.write_stats(*net("mlp_tanh_ce"), "--what", "kfac", "--exact", "--seed", 7)
        tensors = read_safetensors(path)
        self.assertEqual(set(tensors), {f"fc{i}.{field}" for i in (1, 2, 3) for field in ("A", "G", "diagonal", "trace")})
        for layer in ("fc1", "fc2", "fc3"):
            values = {}
            for field in ("A", "G"):
                dtype, shape, data = tensors[f"{layer}.{field}"]
                wanted_shape, wanted = golden("mlp_tanh_ce", f"kfac.{layer}.{field}_expand")
                self.assertEqual((dtype, shape), ("F64", wanted_shape))
                values[field] = to_floats(dtype, data)
                for value, expected in zip(values[field], wanted):
                    self.assertAlmostEqual(value, expected, delta=1e-12)
            rows, cols = tensors[f"{layer}.diagonal"][1]
            diagonal = to_floats("F64", tensors[f"{layer}.diagonal"][2])
            self.assertAlmostEqual(diagonal[cols + 1], values["G"][rows + 1] * values["A"][cols + 1], delta=1e-15)
            self.assertEqual(tensors[f"{layer}.trace"][1], [])
            self.assertAlmostEqual(to_floats("F64", tensors[f"{layer}.trace"][2])[0], sum(diagonal), delta=1e-12)
        metadata = metadata_of(path)
        for key, value in {"samples": "24", "loss_terms": "24", "seed": "7", "dtype": "float64", "labels": "exact",
                           "reduction": "mean over loss terms", "trace": "kfac", "loss": "cross_entropy"}.items():
            self.assertEqual(metadata[key], value)
        for key in ("model_hash", "data_hash"):
            self.assertRegex(metadata[key], "^[0-9a-f]{16}$")

    def test_holds_what_estimators_found(self):
        path = self.write_stats(*net("conv_tanh_ce"), "--what", "trace,diagonal,eigen,kfac", "--exact", "--top-k", 2)
        tensors = read_safetensors(path)
        _, diagonal = golden("conv_tanh_ce", "hessian_diag")
        self.assertEqual(tensors["conv1.diagonal"][1], [3, 10])
        rows = to_floats("F64", tensors["conv1.diagonal"][2])
        # The parameters are conv1.weight [3, 1, 3, 3], then its bias [3].
        for out in range(3):
            for column in range(9):
                self.assertAlmostEqual(rows[10 * out + column], diagonal[9 * out + column], delta=1e-12)
            self.assertAlmostEqual(rows[10 * out + 9], diagonal[27 + out], delta=1e-12)
        self.assertAlmostEqual(to_floats("F64", tensors["conv1.trace"][2])[0], sum(diagonal[:30]), delta=1e-12)
        self.assertEqual(tensors["fc.eigenvalues"][1], [2])
        self.assertEqual(metadata_of(path)["trace"], "exact")
        probed = self.write_stats(*net("conv_tanh_ce"), "--what", "trace", name="T.safetensors")
        self.assertEqual(set(read_safetensors(probed)), {f"{layer}.{field}" for layer in ("conv1", "conv2", "fc")
                                                         for field in ("trace", "trace_stderr")})

    def test_whole_model_directory(self):
        path = self.write_stats(LLAMA, "--data", LLAMA / "data.safetensors", "--what", "trace,diagonal,kfac", "--probes", 4)
        tensors = read_safetensors(path)
        self.assertEqual(tensors["model.norm.diagonal"][1], [8, 1])
        self.assertEqual(tensors[UP + ".diagonal"][1], [8, 8])
        self.assertEqual(tensors[UP + ".A"][:2], ["F32", [8, 8]])
        self.assertNotIn("model.norm.A", tensors)

    @unittest.skipIf(safetensors is None, "the Python package safetensors is not installed: reading with it is NOT tested")
    def test_python_reads_it(self):
        path = self.write_stats(*net("mlp_tanh_ce"), "--what", "kfac")
        with safetensors.safe_open(path, framework="numpy") as file:
            self.assertEqual(file.metadata()["samples"], "24")
            self.assertEqual(file.get_tensor("fc1.A").shape, (7, 7))
            self.assertEqual(file.get_tensor("fc1.trace").shape, ())

    def test_whole_or_not_at_all(self):
        path = self.dir / "S.safetensors"
        arguments = ("hessian", *net("mlp_tanh_ce"), "--what", "kfac", "--stats", path)
        self.fails(*arguments, "--label-draws", 0, status=2, says="--label-draws")
        self.fails(*arguments, "--per", "tensor", status=2, says="--per layer")
        self.fails(*arguments[:-4], "--what", "density", "--stats", path, status=2, says="--eigen-per-block")
        self.assertFalse(path.exists())
        path.write_text("mine")
        self.fails(*arguments, status=2, says="exists")
        self.assertEqual(path.read_text(), "mine")
        self.run_curvq(*arguments, "--overwrite", *ONE_THREAD)
        self.assertIn("fc1.A", read_safetensors(path))


class Merge(CliTest):
    def part(self, name, first, count):
        tensors = {}
        for key, (dtype, shape, data) in read_safetensors(CURVATURE / "mlp_tanh_ce" / "data.safetensors").items():
            if key in ("x", "y"):
                row = len(data) // shape[0]
                tensors[key] = [dtype, [count, *shape[1:]], data[first * row : (first + count) * row]]
        data = self.dir / f"{name}-data.safetensors"
        write_safetensors(data, tensors)
        stats = self.dir / f"{name}.safetensors"
        self.run_curvq("hessian", net("mlp_tanh_ce")[0], "--data", data, "--what", "trace,diagonal,kfac", "--exact", "--stats", stats,
                       *ONE_THREAD)
        return stats

    def test_parts_are_one_run_over_all_data(self):
        whole, first, second = self.part("whole", 0, 24), self.part("first", 0, 7), self.part("second", 7, 17)
        merged = self.dir / "merged.safetensors"
        model = net("mlp_tanh_ce")[0]
        results = self.run_json("hessian", model, "--merge", first, "--merge", second, "--stats", merged)["results"]
        self.assertEqual((results["samples"], results["loss_terms"]), (24, 24))
        ours, truth = read_safetensors(merged), read_safetensors(whole)
        self.assertEqual(set(ours), set(truth))
        for name, (dtype, shape, data) in truth.items():
            self.assertEqual(ours[name][:2], [dtype, shape])
            for value, expected in zip(to_floats(dtype, ours[name][2]), to_floats(dtype, data)):
                self.assertAlmostEqual(value, expected, delta=1e-13 * max(1, abs(expected)))
        self.assertEqual(metadata_of(merged)["samples"], "24")
        self.assertEqual(metadata_of(merged)["data_hash"], f"{metadata_of(first)['data_hash']},{metadata_of(second)['data_hash']}")

        out = ("--stats", self.dir / "out.safetensors")
        self.fails("hessian", model, "--merge", first, "--merge", first, *out, status=3, says="data with hash")
        self.fails("hessian", model, "--merge", merged, "--merge", second, *out, status=3, says="data with hash")
        self.fails("hessian", model, "--merge", first, *out, status=2, says="two")
        self.fails("hessian", model, "--merge", first, "--merge", self.dir / "none.safetensors", *out, status=2,
                   says=["none.safetensors", "no such file"])
        for parts, status in (((first, second), 0), ((first, first), 3)):
            files = [word for part in parts for word in ("--merge", part)]
            result = self.run_curvq("hessian", model, *files, "--stats", self.dir / "dry.safetensors", "--dry-run", status=status)
            self.assertFalse((self.dir / "dry.safetensors").exists())
        self.assertIn("data with hash", result.stderr)
        self.fails("hessian", model, "--merge", first, "--merge", second, status=2, says="--stats")
        self.fails("hessian", model, "--merge", first, "--merge", second, *out, "--data", "x", status=2, says="--merge")
        self.fails("hessian", net("conv_tanh_ce")[0], "--merge", first, "--merge", second, *out, status=3,
                   says=[metadata_of(first)["model_hash"], "conv_tanh_ce"])
        self.assertFalse(out[1].exists())

    def test_tokens(self):
        """Windows of a model directory; labels of the data, so that nothing is drawn."""
        _, shape, data = read_safetensors(IDS)["calib_ids"]
        row = len(data) // shape[0]

        def stats(name, first, count):
            ids = self.dir / f"{name}-ids.safetensors"
            write_safetensors(ids, {"input_ids": ["I32" if row == 4 * shape[1] else "I64", [count, shape[1]],
                                                  data[first * row : (first + count) * row]]})
            path = self.dir / f"{name}.safetensors"
            self.run_curvq("hessian", STORIES, "--data", ids, "--max-length", 64, "--what", "kfac", "--operator", "empirical-fisher",
                           "--parameters", "model.layers.0.*", "--stats", path, *ONE_THREAD)
            return path

        whole, parts = stats("whole", 0, 6), [stats("p1", 0, 2), stats("p2", 2, 4)]
        merged = self.dir / "merged.safetensors"
        self.run_curvq("hessian", STORIES, "--merge", parts[0], "--merge", parts[1], "--stats", merged)
        truth = read_safetensors(whole)
        self.assertEqual(len(truth), 7 * 4)
        for name, (dtype, _, ours) in read_safetensors(merged).items():
            values, expected = to_floats(dtype, ours), to_floats(dtype, truth[name][2])
            norm = math.sqrt(sum(value * value for value in expected))
            error = math.sqrt(sum((x - y) ** 2 for x, y in zip(values, expected)))
            self.assertLess(error, 1e-5 * norm, name)


class Quantize(CliTest):
    def setUp(self):
        super().setUp()
        # The windows that --calibration takes, as x with their next tokens as y; the last has none.
        _, shape, data = read_safetensors(IDS)["calib_ids"]
        width = len(data) // (shape[0] * shape[1])
        ids = struct.unpack(f"<{shape[0] * shape[1]}{'i' if width == 4 else 'q'}", bytes(data))
        n, length = 8, shape[1]
        rows = [ids[i * length : (i + 1) * length] for i in range(n)]
        pack = lambda lists: struct.pack(f"<{n * length}q", *[value for row in lists for value in row])
        self.data = self.dir / "xy.safetensors"
        write_safetensors(self.data, {"x": ["I64", [n, length], pack(rows)],
                                      "y": ["I64", [n, length], pack([[*row[1:], -1] for row in rows])]})
        self.stats = self.dir / "S.safetensors"

    def make_stats(self, *more, model=STORIES):
        self.run_curvq("hessian", model, "--data", self.data, "--what", "kfac", "--stats", self.stats, *more, *ONE_THREAD)

    def test_statistics_stand_for_calibration(self):
        self.make_stats()
        common = ("quantize", STORIES, "--scheme", "nvfp4", *KEEP)
        ours = self.run_json(*common, "--out", self.dir / "a", "--stats", self.stats, *ONE_THREAD)
        theirs = self.run_json(*common, "--out", self.dir / "b", "--calibration", f"{IDS}:calib_ids", "--num-samples", 8, "--capture",
                               "float", *ONE_THREAD)
        self.assertIn("stats", ours["inputs"])
        self.assertEqual(ours["results"]["calibration_tokens"], 0)
        for x, y in zip(ours["results"]["layers"], theirs["results"]["layers"]):
            self.assertEqual(x["name"], y["name"])
            self.assertLess(x["relative_error"], x["rtn_relative_error"])
            # The same Hessian to float32 rounding; a code at a tie may fall to the other side.
            self.assertAlmostEqual(x["rtn_relative_error"] / y["rtn_relative_error"], 1, delta=1e-3)
            self.assertAlmostEqual(x["relative_error"] / y["relative_error"], 1, delta=0.02)
        self.run_curvq("verify", self.dir / "a")

    def test_output_factors_come_along(self):
        """Sweeps with G lower the KL that G approximates, as evaluated on the same tokens."""
        self.make_stats("--label-draws", 8)
        kl = {}
        for factor in ("none", "fisher"):
            out = self.dir / factor
            self.run_curvq("quantize", STORIES, "--scheme", "nvfp4", *KEEP, "--stats", self.stats, "--sweeps", 2, "--output-factor", factor,
                           "--out", out, *ONE_THREAD)
            kl[factor] = self.run_json("eval", out, "--reference", STORIES, "--data", f"{IDS}:calib_ids", "--num-samples", 8,
                                       *ONE_THREAD)["results"]["kl_mean"]
        self.assertLess(kl["fisher"], 0.95 * kl["none"])
        self.make_stats("--parameters", "*self_attn*", "--overwrite")
        common = ("quantize", STORIES, *KEEP, "--stats", self.stats, "--ignore", "*mlp*", "--dry-run")
        self.run_curvq(*common, "--sweeps", 1, "--output-factor", "fisher")
        self.fails(*common, "--output-factor", "fisher", status=2, says="sweep")
        self.fails(*common, "--held-out", 0.2, status=2, says=["--held-out", "--stats"])

        write_safetensors(self.dir / "T.safetensors", {name: tensor for name, tensor in read_safetensors(self.stats).items()
                                                       if not name.endswith(".G")})
        self.fails("quantize", STORIES, *KEEP, "--stats", self.dir / "T.safetensors", "--ignore", "*mlp*", "--sweeps", 1, "--output-factor",
                   "fisher", "--dry-run", status=3, says=[".G", "kfac", "--output-factor none"])

    def test_factors_that_are_no_means_of_squares(self):
        self.make_stats("--parameters", "*layers.0.self_attn.q_proj*")
        good = read_safetensors(self.stats)
        for field, at, value, status, says in (("G", 1, math.inf, 4, "not finite at 0, 1"), ("G", 0, -5.0, 3, "-5 on its diagonal"),
                                               ("A", 0, -5.0, 3, "on its diagonal"), ("A", 1, math.nan, 4, "not finite")):
            name = f"model.layers.0.self_attn.q_proj.{field}"
            with self.subTest(name=name, value=value):
                tensors = {key: [dtype, shape, bytearray(data)] for key, (dtype, shape, data) in good.items()}
                tensors[name][2][4 * at : 4 * at + 4] = struct.pack("<f", value)
                write_safetensors(self.dir / "bad.safetensors", tensors, metadata_of(self.stats))
                self.fails("quantize", STORIES, "--scheme", "int8", "--ignore", "re:.*(layers.[1-9]|k_proj|v_proj|o_proj|mlp).*", "--stats",
                           self.dir / "bad.safetensors", "--sweeps", 1, "--output-factor", "fisher", "--out", self.dir / "a",
                           status=status, says=[name, says])

    def test_another_model_or_less_is_refused(self):
        self.make_stats("--parameters", "*self_attn*")
        common = ("--out", self.dir / "a", "--scheme", "nvfp4", *KEEP, "--stats", self.stats)
        self.fails("quantize", STORIES, *common, status=3, says=["model.layers.0.mlp.gate_proj", "--ignore"])
        self.run_curvq("quantize", STORIES, *common, "--ignore", "*mlp*", "--dry-run")
        other = self.copy_model("stories260K")

        def change(tensors):
            tensors["model.norm.weight"][2][0] ^= 1

        edit_tensors(other, change)
        self.fails("quantize", other, *common, "--ignore", "*mlp*", status=3,
                   says=[metadata_of(self.stats)["model_hash"], "has hash"])
        self.assertFalse((self.dir / "a").exists())
        for option in (("--calibration", f"{IDS}:calib_ids"), ("--capture", "sequential"), ("--token-weights", "gradient")):
            self.fails("quantize", STORIES, *common, *option, status=2, says=[option[0], "--stats"])

    def test_a_bare_file_takes_them_too(self):
        self.make_stats()
        bare = STORIES / "model.safetensors"
        common = ("--out", self.dir / "a.safetensors", "--scheme", "nvfp4", *KEEP, "--stats", self.stats, "--ignore", "*embed*", "--ignore", "re:.*norm")
        self.run_curvq("quantize", bare, *common[:-2], "--dry-run")
        write = bytearray(bare.read_bytes())
        write[-1] ^= 1
        other = self.write("other.safetensors", bytes(write))
        self.fails("quantize", other, *common[:-2], status=3, says="has hash")


if __name__ == "__main__":
    unittest.main()
