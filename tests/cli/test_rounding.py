"""quantize on layer problems: awkward Hessians, the Optimal Brain quantizers, several candidates."""

import json
import os
import random
import struct
import subprocess
import unittest

from support import BINARY, MODELS, CliTest, read_safetensors, write_safetensors

LAYERS = MODELS.parent / "layers"
NAME = "stories.L4.o_proj"
INPUTS = 64


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


class RoundingTest(CliTest):
    def setUp(self):
        super().setUp()
        self.weight = read_safetensors(LAYERS / "weights.safetensors")[NAME + ".weight"]
        raw = read_safetensors(LAYERS / "stats.safetensors")[NAME + ".hessian"][2]
        self.hessian = list(struct.unpack(f"<{INPUTS * INPUTS}f", raw))
        write_safetensors(self.dir / "w.safetensors", {NAME + ".weight": self.weight})

    def stats(self, **tensors):
        """A statistics file of FIELD=[rows of 64 values]."""
        path = self.dir / "s.safetensors"
        write_safetensors(path, {f"{NAME}.{field}": ["F32", [len(values) // INPUTS, INPUTS], floats(values)]
                                 for field, values in tensors.items()})
        return path

    def arguments(self, stats, *options):
        return ["quantize", self.dir / "w.safetensors", "--stats", stats, "--out", self.dir / "out.safetensors",
                "--overwrite", *options]

    def layer(self, stats, *options):
        return self.run_json(*self.arguments(stats, *options))["results"]["layers"][0]

    def inputs(self, count):
        draw = random.Random(1)
        common = [[draw.gauss(0, 1) for _ in range(4)] for _ in range(INPUTS)]
        rows = []
        for _ in range(count):
            latent = [draw.gauss(0, 1) for _ in range(4)]
            rows += [sum(a * b for a, b in zip(mix, latent)) + 0.3 * draw.gauss(0, 1) for mix in common]
        return rows

    def test_an_expert_without_tokens_is_rounded_to_nearest_and_named(self):
        stats = self.stats(hessian=[0.0] * (INPUTS * INPUTS))
        result = self.run_curvq(*self.arguments(stats, "--scale-search", "hessian", "--sweeps", "2"))
        self.assertIn(f"{NAME}: no input was ever non-zero; rounded to nearest", result.stderr)
        self.assertIn("1 of 1 layers were rounded to nearest after all", result.stderr)
        zero = read_safetensors(self.dir / "out.safetensors")
        self.run_curvq(*self.arguments(stats, "--method", "rtn"))
        self.assertEqual(zero, read_safetensors(self.dir / "out.safetensors"))

    def test_few_tokens_raise_the_damping_and_say_so(self):
        layer = self.layer(self.stats(inputs=self.inputs(16)))
        self.assertIn("the hessian has rank 16 for 64 inputs, more tokens would help", layer["note"])
        self.assertGreater(layer["damping"], 0.01)
        layer = self.layer(self.stats(inputs=self.inputs(300)))
        self.assertNotIn("note", layer)
        self.assertEqual(layer["damping"], 0.01)

    def test_what_is_not_finite_or_overflows_names_the_sample(self):
        inputs = self.inputs(80)
        inputs[5 * INPUTS + 3] = 1e25
        self.fails(*self.arguments(self.stats(inputs=inputs)), status=4,
                   says=[f"{NAME}.inputs overflow float32", "feature 3 is 1e+25 in sample 5"])
        inputs[5 * INPUTS + 3] = float("inf")
        self.fails(*self.arguments(self.stats(inputs=inputs)), status=4, says=["not finite at sample 5, feature 3"])

    def test_negative_hessians_are_errors(self):
        stats = self.stats(hessian=[-value for value in self.hessian])
        self.fails(*self.arguments(stats), status=4, says=[NAME, "finite but not positive definite (column"])
        self.assertFalse((self.dir / "out.safetensors").exists())

    def test_both_inverses_give_the_same_layer(self):
        stats = self.stats(inputs=self.inputs(400))
        errors = {}
        for method in ("gptq", "obs"):
            bounds = {}
            for inverse in ("cholesky", "sherman-morrison"):
                layer = self.layer(stats, "--method", method, "--inverse", inverse)
                errors[method, inverse], bounds[inverse] = layer["relative_error"], layer["nearest_plane_bound"]
            self.assertAlmostEqual(errors[method, "cholesky"] / errors[method, "sherman-morrison"], 1, delta=1e-3)
            self.assertAlmostEqual(bounds["cholesky"] / bounds["sherman-morrison"], 1, delta=1e-3)
        rtn = self.layer(stats, "--method", "rtn")["relative_error"]
        self.assertLess(errors["obs", "cholesky"], 0.7 * rtn)
        obd = self.layer(stats, "--method", "obd")
        self.assertLess(obd["relative_error"], rtn)
        self.fails(*self.arguments(self.stats(hessian=self.hessian), "--inverse", "sherman-morrison"), status=3,
                   says=f"{NAME}.inputs is not there")
        self.fails(*self.arguments(stats, "--method", "rtn", "--inverse", "sherman-morrison"), status=2,
                   says="needs gptq or obs")

    def test_the_report_names_method_candidates_and_bound(self):
        stats = self.stats(hessian=self.hessian)
        one = self.run_json(*self.arguments(stats))["results"]
        many = self.run_json(*self.arguments(stats, "--candidates", "16"))["results"]
        obs = self.run_json(*self.arguments(stats, "--method", "obs"))["results"]
        self.assertEqual([r["rounding"]["method"] for r in (one, many, obs)], ["gptq", "gptq", "obs"])
        self.assertEqual(many["rounding"]["candidates"], 16)
        self.assertLess(many["layers"][0]["relative_error"], 0.97 * one["layers"][0]["relative_error"])
        for results in (one, many, obs):
            layer = results["layers"][0]
            self.assertLess(layer["damped_error_before_sweeps"], layer["nearest_plane_bound"])
        self.fails(*self.arguments(stats, "--method", "obs", "--candidates", "2"), status=2, says="candidates")
        self.fails(*self.arguments(stats, "--candidates", "0"), status=2, says="candidates")

    def test_memory_does_not_grow_with_the_file(self):
        side = 1024
        data = floats([random.Random(1).gauss(0, 1) for _ in range(side)]) * side

        def peak(layers):
            path = self.dir / f"{layers}.safetensors"
            header = json.dumps({f"layer.{i}.weight": {"dtype": "F32", "shape": [side, side],
                                                       "data_offsets": [i * len(data), (i + 1) * len(data)]}
                                 for i in range(layers)}).encode()
            with open(path, "wb") as out:  # piece by piece: a child's peak begins with its parent's memory
                out.write(struct.pack("<Q", len(header)) + header)
                for _ in range(layers):
                    out.write(data)
            process = subprocess.Popen(
                [BINARY, "quantize", path, "--out", self.dir / f"{layers}-out", "--scheme", "nvfp4", "--method", "rtn",
                 "--threads", "1"], stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = 0
            self.assertEqual(status, 0)
            return usage.ru_maxrss << 10

        # Of 36 layers more, 144 MB, half would be much.
        self.assertLess(peak(40), peak(4) + 72e6)


if __name__ == "__main__":
    unittest.main()
