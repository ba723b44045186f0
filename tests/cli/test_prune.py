"""curvq prune on small models: patterns, masks, dtypes, files, reports and errors."""

import json
import math
import struct
import unittest

from support import MODELS, CliTest, edit_tensors, read_safetensors, to_floats, write_safetensors

MODEL = MODELS / "llama_gqa_tied"
DATA = MODEL / "logits.safetensors"
STORIES = MODELS / "stories260K"
TOKENS = MODELS.parent / "stories260K-tokens"
STORIES_DATA = ("--calibration", TOKENS / "calibration.safetensors", "--num-samples", "4")


def bits(row, cols):
    return [row[c // 8] >> c % 8 & 1 for c in range(cols)]


class Prune(CliTest):
    def prune(self, *arguments, model=MODEL, data=("--calibration", DATA), out="out"):
        return self.run_json("prune", model, "--out", self.dir / out, "--threads", "1", *data, *arguments)

    def masks(self, out="out"):
        """{layer: rows of bits}, checked against the weights that are zero."""
        raw = (self.dir / out / "pruning/masks.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", raw[:8])
        metadata = json.loads(raw[8 : 8 + length])["__metadata__"]
        self.assertEqual(metadata["format"], "curvq-mask")
        columns = json.loads(metadata["columns"])
        tensors = read_safetensors(self.dir / out / "model.safetensors")
        masks = {}
        for name, (dtype, shape, data) in read_safetensors(self.dir / out / "pruning/masks.safetensors").items():
            layer, cols = name[: -len(".mask")], columns[name[: -len(".mask")]]
            self.assertEqual((dtype, shape[1]), ("U8", (cols + 7) // 8))
            rows = [bits(data[r * shape[1] : (r + 1) * shape[1]], cols) for r in range(shape[0])]
            weights = to_floats(tensors[layer + ".weight"][0], tensors[layer + ".weight"][2])
            for r, row in enumerate(rows):
                for c, kept in enumerate(row):
                    self.assertTrue(kept or weights[r * cols + c] == 0, (layer, r, c))
            masks[layer] = rows
        return masks

    def test_unstructured_by_every_method(self):
        errors = {}
        for method in ["magnitude", "wanda", "obd", "obs"]:
            report = self.prune("--sparsity", "0.5", "--method", method, out=method)
            results = report["results"]
            self.assertEqual(len(results["layers"]), 14)
            self.assertEqual(results["zero_weights"], results["weights"] // 2)
            self.assertEqual(results["stored_bytes"], results["original_bytes"])
            for layer in results["layers"]:
                self.assertEqual(layer["sparsity"], 0.5)
            gone = sum(not bit for mask in self.masks(method).values() for row in mask for bit in row)
            self.assertEqual(gone, results["zero_weights"])
            written = json.loads((self.dir / method / "pruning_report.json").read_text())
            self.assertEqual(written, report)
            self.assertIs(self.run_json("verify", self.dir / method)["results"]["ok"], True)
            errors[method] = sum(layer["relative_error"] for layer in results["layers"])
        self.assertLess(errors["obs"], errors["wanda"])
        self.assertLess(errors["wanda"], errors["magnitude"])

    def test_pattern_holds_in_every_group(self):
        for sweeps in ["0", "2"]:
            results = self.prune("--pattern", "2:4", "--sweeps", sweeps, out=f"s{sweeps}")["results"]
            self.assertEqual(results["pruning"]["sweeps"], int(sweeps))
            for layer, mask in self.masks(f"s{sweeps}").items():
                for row in mask:
                    self.assertEqual({sum(row[c : c + 4]) for c in range(0, len(row), 4)}, {2}, layer)

    def test_sweeps_lower_the_error_and_the_divergence(self):
        kl = []
        for sweeps in ["0", "3"]:
            results = self.prune("--sparsity", "0.5", "--sweeps", sweeps, model=STORIES, data=STORIES_DATA,
                                 out=sweeps)["results"]
            evaluated = self.run_json("eval", self.dir / sweeps, "--reference", STORIES, "--data",
                                      TOKENS / "evaluation.safetensors", "--num-samples", "4", "--threads", "1")["results"]
            kl.append((sum(layer["relative_error"] for layer in results["layers"]), evaluated["kl_mean"]))
        self.assertLess(kl[1][0], 0.8 * kl[0][0])
        self.assertLess(kl[1][1], kl[0][1])

    def test_dtype_of_the_source_is_kept(self):
        model = self.copy_model("llama_gqa_tied")

        def to_bf16(tensors):
            for tensor in tensors.values():
                values = to_floats(tensor[0], tensor[2])
                words = [struct.unpack("<I", struct.pack("<f", v))[0] >> 16 for v in values]
                tensor[0], tensor[2] = "BF16", struct.pack(f"<{len(words)}H", *words)

        edit_tensors(model, to_bf16)
        before = read_safetensors(model / "model.safetensors")
        self.prune("--sparsity", "0.3", model=model)
        after = read_safetensors(self.dir / "out/model.safetensors")
        self.assertEqual({n: t[:2] for n, t in before.items()}, {n: t[:2] for n, t in after.items()})
        masks = self.masks()
        for name, tensor in before.items():
            if name[: -len(".weight")] not in masks:
                self.assertEqual(tensor[2], after[name][2], name)

    def test_ignored_layers_stay_to_the_bit(self):
        results = self.prune("--sparsity", "0.5", "--ignore", "*.down_proj", "--ignore", "re:.*layers\\.0\\..*")["results"]
        self.assertEqual(len(results["kept"]), 8)
        before, after = (read_safetensors(p / "model.safetensors") for p in (MODEL, self.dir / "out"))
        for layer in results["kept"]:
            self.assertEqual(before[layer["name"] + ".weight"], after[layer["name"] + ".weight"])
        self.fails("prune", MODEL, "--dry-run", "--sparsity", "0.5", "--calibration", DATA, "--ignore", "nothing",
                   status=2, says="--ignore 'nothing' matches none")

    def test_obd_takes_diagonals_from_a_file(self):
        tensors, wanted = {}, {}
        for name, (_, shape, _) in read_safetensors(MODEL / "model.safetensors").items():
            if "_proj" not in name:
                continue
            # Even columns matter, odd ones do not.
            diagonal = [1.0 if c % 2 == 0 else 0.0 for _ in range(shape[0]) for c in range(shape[1])]
            layer = name[: -len(".weight")]
            tensors[layer + ".diagonal"] = ["F32", shape, struct.pack(f"<{len(diagonal)}f", *diagonal)]
            wanted[layer] = [[c % 2 == 0 for c in range(shape[1])]] * shape[0]
        stats = self.dir / "stats.safetensors"
        write_safetensors(stats, tensors)
        self.prune("--sparsity", "0.5", "--method", "obd", "--stats", stats, data=())
        self.assertEqual(self.masks(), wanted)
        odd, (first, second) = dict(tensors), list(tensors)[:2]
        odd[first] = [*tensors[first][:2], bytes(len(tensors[first][2]))]
        odd[second] = [*tensors[second][:2], struct.pack("<f", -1) + tensors[second][2][4:]]
        write_safetensors(stats, odd)
        warnings = self.run_curvq("prune", MODEL, "--dry-run", "--sparsity", "0.5", "--method", "obd", "--stats", stats).stderr
        self.assertIn(f"{first} is zero throughout", warnings)
        self.assertIn(f"{second}: 1 of", warnings)
        name, tensor = tensors.popitem()
        write_safetensors(stats, tensors)
        self.fails("prune", MODEL, "--dry-run", "--sparsity", "0.5", "--method", "obd", "--stats", stats, status=3, says=name)
        write_safetensors(stats, tensors | {name: [tensor[0], tensor[1][::-1], tensor[2]]})
        if tensor[1] != tensor[1][::-1]:
            self.fails("prune", MODEL, "--dry-run", "--sparsity", "0.5", "--method", "obd", "--stats", stats, status=3,
                       says=[name, "the layer wants floating-point"])

    def test_quantized_in_the_same_solve(self):
        for scheme in ["nvfp4", "int4"]:
            more = ["--group-size", "32"] if scheme == "int4" else []
            results = self.prune("--pattern", "2:4", "--scheme", scheme, "--sweeps", "1", *more, out=scheme)["results"]
            self.assertEqual(results["masks"], "pruning/masks.safetensors")
            for layer in results["layers"]:
                self.assertEqual(layer["sparsity"], 0.5)
                self.assertLess(layer["relative_error"], layer["rtn_relative_error"])
            self.assertTrue((self.dir / scheme / "pruning_report.json").exists())
            verified = self.run_json("verify", self.dir / scheme)["results"]
            self.assertEqual((verified["ok"], verified["quantized_layers"]), (True, 14))
            sparsity = self.run_json("inspect", self.dir / scheme, "--sparsity")["results"]["sparsity"]
            layers = {m["name"]: m for m in sparsity["matrices"]}
            for layer in results["layers"]:
                matrix = layers[layer["name"] + ".weight"]
                self.assertIs(matrix["two_four"], True)
                rows, cols = layer["shape"]
                self.assertEqual((matrix["dense_bytes"], matrix["two_four_bytes"]), (rows * cols // 2, rows * cols * 3 // 8))
        self.fails("prune", MODEL, "--dry-run", "--pattern", "2:4", "--scheme", "int4", "--stats", "x", "--method", "obd",
                   status=2, says="exclude each other")

    def test_global_allocation(self):
        results = self.prune("--sparsity", "0.5", "--allocation", "global", model=STORIES, data=STORIES_DATA)["results"]
        shares = [layer["sparsity"] for layer in results["layers"]]
        self.assertGreater(max(shares), 0.55)
        self.assertLess(min(shares), 0.45)
        # Each layer's number is rounded by itself.
        self.assertAlmostEqual(results["zero_weights"], results["weights"] / 2, delta=len(shares))
        self.fails("prune", MODEL, "--dry-run", "--pattern", "2:4", "--allocation", "global", "--calibration", DATA,
                   status=2, says="unstructured")

    def test_presets(self):
        def pruning(*arguments):
            return self.run_json("prune", MODEL, "--dry-run", "--sparsity", "0.5", "--calibration", DATA, "--threads", "1",
                                 *arguments)["results"]["pruning"]
        plain = {"method": "obs", "pattern": "50 %", "sweeps": 0, "allocation": "uniform", "token_weights": "none", "input_correction": 0.0,
                 "residual_correction": 0.0, "activations": "int16"}
        best = plain | {"sweeps": 3, "token_weights": "gradient", "input_correction": 1.0, "residual_correction": 0.5}
        self.assertEqual(pruning(), plain)
        self.assertEqual(pruning("--preset", "fast")["method"], "magnitude")
        self.assertEqual(pruning("--preset", "best"), best)
        self.assertEqual(pruning("--preset", "best", "--sweeps", "1", "--token-weights", "none"),
                         best | {"sweeps": 1, "token_weights": "none"})

    def test_dry_run_writes_nothing(self):
        results = self.run_json("prune", MODEL, "--dry-run", "--pattern", "1:4", "--method", "magnitude")["results"]
        self.assertEqual(results["zero_weights"], 0)
        self.assertEqual({layer["sparsity"] for layer in results["layers"]}, {0.75})
        self.assertEqual({layer["relative_error"] for layer in results["layers"]}, {"nan"})
        self.assertEqual(list(self.dir.iterdir()), [])

    def test_wrong_options(self):
        for arguments, says in [
            ((), "--sparsity SHARE or --pattern N:M"),
            (("--sparsity", "0.5", "--pattern", "2:4"), "exclude each other"),
            (("--sparsity", "1"), "below 1"),
            (("--sparsity", "0.999999", "--method", "magnitude"), "leaves none of its"),
            (("--pattern", "4:2"), "not N:M"),
            (("--pattern", "3:7", "--method", "magnitude"), "no multiple of 7"),
            (("--sparsity", "0.5"), "obs needs calibration data"),
            (("--sparsity", "0.5", "--method", "magnitude", "--sweeps", "1"), "a sweep needs calibration data"),
            (("--sparsity", "0.5", "--method", "magnitude", "--input-correction", "1"), "sequential capture"),
            (("--sparsity", "0.5", "--method", "woodfisher"), "woodfisher needs stats"),
            (("--sparsity", "0.5", "--method", "wanda", "--stats", "x"), "stats gives diagonals for obd"),
        ]:
            self.fails("prune", MODEL, "--dry-run", *arguments, status=2, says=says)

    def test_gradients_that_say_nothing(self):
        shapes = {name[: -len(".weight")]: shape for name, (_, shape, _) in read_safetensors(MODEL / "model.safetensors").items()
                  if name.endswith("_proj.weight")}
        first = min(shapes)

        def stats(samples, broken=None):
            tensors = {f"{layer}.gradients": ["F32", [samples, *shape], bytearray(struct.pack("<f", 0.5) * (samples * shape[0] * shape[1]))]
                       for layer, shape in shapes.items()}
            if broken is not None:
                tensors[f"{first}.gradients"][2][:4] = struct.pack("<f", broken)
            write_safetensors(self.dir / "S.safetensors", tensors)
            return self.dir / "S.safetensors"

        common = ("prune", MODEL, "--out", self.dir / "out", "--pattern", "2:4", "--method", "woodfisher", "--threads", "1", "--stats")
        self.fails(*common, stats(2, math.nan), status=4, says=[first, "gradient 0 is not finite at row 0, column 0"])
        self.fails(*common, stats(0), status=3, says=["S.safetensors", ".gradients", "no sample"])
        self.assertFalse((self.dir / "out").exists())

    def test_output_must_be_new(self):
        (self.dir / "out").mkdir()
        (self.dir / "out/file").write_text("mine")
        self.fails("prune", MODEL, "--out", self.dir / "out", "--sparsity", "0.5", "--method", "magnitude", status=2,
                   says="--overwrite")
        self.fails("prune", MODEL, "--out", self.dir / "out", "--sparsity", "0.5", "--method", "magnitude", "--overwrite", status=2,
                   says="was not written by curvq")
        (self.dir / "out/file").unlink()
        for overwrite in ((), ("--overwrite",)):
            self.prune("--sparsity", "0.5", "--method", "magnitude", *overwrite, data=())


if __name__ == "__main__":
    unittest.main()
