"""curvq compare, against the same errors computed here."""

import math
import struct
import unittest

from quantized import LAYOUTS, quantized_copy
from support import MODELS, CliTest, edit_tensors, read_safetensors, to_floats

MODEL = MODELS / "llama_gqa_tied"


def errors(a, b):
    """Relative error, largest error, cosine, SQNR in dB."""
    aa, bb = math.fsum(x * x for x in a), math.fsum(y * y for y in b)
    ab, dd = math.fsum(x * y for x, y in zip(a, b)), math.fsum((y - x) ** 2 for x, y in zip(a, b))
    return (math.sqrt(dd / aa), max(abs(y - x) for x, y in zip(a, b)), ab / math.sqrt(aa * bb),
            10 * math.log10(aa / dd))


class Compare(CliTest):
    def assert_errors(self, row, expected):
        # Sums of n terms in float64: relative error below n eps, n < 2^17.
        for key, value in zip(["relative_error", "max_abs_error", "cosine", "sqnr_db"], expected):
            self.assertAlmostEqual(row[key], value, delta=3e-11 * max(1, abs(value)), msg=f"{row['name']} {key}")

    def test_every_layout_against_the_original(self):
        original = read_safetensors(MODEL / "model.safetensors")
        for layout in LAYOUTS:
            with self.subTest(layout):
                model, values = quantized_copy(self.dir / layout, layout)
                results = self.run_json("compare", MODEL, model)["results"]
                self.assertEqual(len(results["tensors"]), len(original))
                self.assertEqual(results["identical"], len(original) - len(values))
                everything = [], []
                for row in results["tensors"]:
                    if row["name"] not in values:
                        self.assertTrue(row["identical"])
                        self.assertEqual((row["relative_error"], row["sqnr_db"]), (0, "inf"))
                        continue
                    dtype, _, data = original[row["name"]]
                    a, b = to_floats(dtype, data), values[row["name"]]
                    self.assertEqual(row["format_a"], dtype)
                    self.assertIn(layout.split("-")[0], row["format_b"])
                    self.assert_errors(row, errors(a, b))
                    everything[0].extend(a)
                    everything[1].extend(b)
                self.assert_errors({"name": "quantized", **results["quantized"]}, errors(*everything))

    def test_result_does_not_depend_on_the_number_of_threads(self):
        model, _ = quantized_copy(self.dir / "model", "nvfp4")
        one = self.run_json("compare", MODEL, model, "--threads", "1")["results"]
        self.assertEqual(one, self.run_json("compare", MODEL, model, "--threads", "4")["results"])

    def test_a_model_with_itself(self):
        result = self.run_curvq("compare", MODEL, MODEL)
        self.assertIn("20 tensors compared, 20 identical", result.stdout)
        rows = self.run_json("compare", MODEL, MODEL)["results"]["tensors"]
        self.assertEqual({(r["relative_error"], r["max_abs_error"], r["cosine"], r["sqnr_db"]) for r in rows},
                         {(0, 0, 1, "inf")})

    def test_tensors_in_one_only_and_shapes_that_differ(self):
        model = self.copy_model("llama_gqa_tied")

        def change(tensors):
            tensors["extra.weight"] = tensors.pop("model.norm.weight")
            tensors["model.layers.0.mlp.up_proj.weight"][1].reverse()

        edit_tensors(model, change)
        text = self.run_curvq("compare", MODEL, model).stdout
        self.assertIn("only in A: model.norm.weight\n", text)
        self.assertIn("only in B: extra.weight\n", text)
        self.assertIn("shapes differ: model.layers.0.mlp.up_proj.weight: A [128, 64], B [64, 128]\n", text)
        results = self.run_json("compare", MODEL, model)["results"]
        self.assertEqual((results["only_in_a"], results["only_in_b"]), (["model.norm.weight"], ["extra.weight"]))
        self.assertEqual(results["shape_mismatches"][0]["shape_b"], [64, 128])

    def test_nothing_in_common(self):
        model = self.copy_model("llama_gqa_tied")
        edit_tensors(model, lambda tensors: [tensors.update({"x." + n: tensors.pop(n)}) for n in list(tensors)])
        self.fails("compare", MODEL, model, status=3, says="no tensor in common (20 and 20 tensors)")

    def test_values_that_are_not_finite_give_nan_never_null(self):
        model = self.copy_model("stories260K")

        def change(tensors):
            tensors["model.norm.weight"][2][8:12] = struct.pack("<f", math.nan)

        edit_tensors(model, change)
        text = self.run_curvq("compare", MODELS / "stories260K", model, "--json").stdout
        self.assertNotIn("null", text)
        results = self.run_json("compare", MODELS / "stories260K", model)["results"]
        row = next(r for r in results["tensors"] if r["name"] == "model.norm.weight")
        self.assertEqual((row["relative_error"], row["max_abs_error"], results["total"]["cosine"]), ("nan",) * 3)

    def test_zeros(self):
        model = self.copy_model("stories260K")

        def change(tensors):
            data = tensors["model.norm.weight"][2]
            data[:] = bytes(len(data))

        edit_tensors(model, change)
        forward = self.run_json("compare", MODELS / "stories260K", model)["results"]["tensors"]
        back = self.run_json("compare", model, MODELS / "stories260K")["results"]["tensors"]
        row = next(r for r in forward if r["name"] == "model.norm.weight")
        self.assertEqual((row["relative_error"], row["cosine"], row["sqnr_db"]), (1, 0, 0))
        row = next(r for r in back if r["name"] == "model.norm.weight")
        self.assertEqual((row["relative_error"], row["cosine"], row["sqnr_db"]), ("inf", 0, "-inf"))

    def test_sort_and_limit(self):
        model, _ = quantized_copy(self.dir / "model", "int4")
        rows = self.run_json("compare", MODEL, model, "--sort", "max", "--limit", "1")["results"]["tensors"]
        self.assertEqual(len(rows), 20)
        self.assertEqual(rows, sorted(rows, key=lambda row: -row["max_abs_error"]))
        text = self.run_curvq("compare", MODEL, model, "--sort", "max", "--limit", "1").stdout
        self.assertIn(rows[0]["name"], text)
        self.assertNotIn(rows[1]["name"], text)
        self.assertIn("... and 19 more", text)

    def test_what_cannot_be_read(self):
        self.fails("compare", MODEL, self.dir / "none", status=2, says="none: does not exist")
        model, _ = quantized_copy(self.dir / "model", "int4")
        edit_tensors(model, lambda tensors: tensors.pop("model.layers.0.mlp.up_proj.weight_scale"))
        self.fails("compare", MODEL, model, status=3, says="model.layers.0.mlp.up_proj.weight_scale")


if __name__ == "__main__":
    unittest.main()
