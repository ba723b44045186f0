"""curvq quantize --guard: the checkpoint that is written is the one that held-out windows like best."""

import random
import struct
import unittest

from support import MODELS, CliTest, read_safetensors, write_safetensors

STORIES = MODELS / "stories260K"
IDS = STORIES / "wt2_ids_32x256.safetensors"
COMMON = ("quantize", STORIES, "--scheme", "nvfp4", "--on-indivisible", "keep", "--threads", "1")


class Guard(CliTest):
    def setUp(self):
        super().setUp()
        dtype, shape, data = read_safetensors(IDS)["calib_ids"]
        self.length = shape[1]
        code = "<%d%s" % (shape[0] * shape[1], "i" if dtype == "I32" else "q")
        ids = struct.unpack(code, bytes(data))
        self.windows = [ids[i * self.length : (i + 1) * self.length] for i in range(shape[0])]

    def write_ids(self, name, windows):
        path = self.dir / name
        values = [value for window in windows for value in window]
        write_safetensors(path, {"input_ids": ["I64", [len(windows), self.length], struct.pack(f"<{len(values)}q", *values)]})
        return path

    def kl(self, checkpoint, ids):
        return self.run_json("eval", checkpoint, "--reference", STORIES, "--data", ids, "--engine", "dequantized", "--threads",
                             "1")["results"]["kl_mean"]

    def test_what_was_asked_is_kept_where_it_is_best(self):
        data, judges = self.write_ids("ids.safetensors", self.windows[:10]), self.write_ids("judges.safetensors", self.windows[8:10])
        out = self.dir / "out"
        results = self.run_json(*COMMON, "--preset", "best", "--calibration", data, "--out", out)["results"]
        guard = {candidate["name"]: candidate["kl_mean"] for candidate in results["guard"]["candidates"]}
        self.assertEqual(results["guard"]["kept"], "as asked")
        self.assertLess(guard["as asked"], guard["plain gptq"])
        self.assertLess(guard["plain gptq"], guard["round to nearest"])
        self.assertAlmostEqual(self.kl(out, judges) / guard["as asked"], 1, delta=1e-6)
        self.run_curvq("verify", out)
        # The others are what the plain commands write.
        seen = self.write_ids("seen.safetensors", self.windows[:8])
        self.run_curvq(*COMMON, "--calibration", seen, "--out", self.dir / "plain")
        self.assertAlmostEqual(self.kl(self.dir / "plain", judges) / guard["plain gptq"], 1, delta=1e-6)
        self.assertEqual(sorted(path.name for path in self.dir.iterdir()),
                         ["ids.safetensors", "judges.safetensors", "out", "plain", "seen.safetensors"])

    def test_a_result_that_is_worse_is_not_kept(self):
        """Calibration on random tokens of a fifth of the vocabulary, judged by real ones."""
        draw = random.Random(1)
        noise = [[draw.randrange(3, 100) for _ in range(self.length)] for _ in range(4)]
        data = self.write_ids("ids.safetensors", noise + [self.windows[0]])
        out, plain = self.dir / "out", self.dir / "plain"
        arguments = (*COMMON, "--calibration", data, "--sweeps", "1", "--output-factor", "fisher", "--held-out", "0.2",
                     "--damping", "1e-6")
        result = self.run_curvq(*arguments, "--guard", "held-out", "--out", out)
        self.assertIn("kept: round to nearest", result.stdout[-300:])
        self.assertIn("round to nearest is kept", result.stderr)
        self.run_curvq(*COMMON, "--method", "rtn", "--out", plain)
        self.assertEqual((out / "model.safetensors").read_bytes(), (plain / "model.safetensors").read_bytes())

    def test_needs_windows_to_judge_by(self):
        one = self.write_ids("one.safetensors", self.windows[:1])
        self.fails(*COMMON, "--guard", "held-out", "--calibration", one, "--out", self.dir / "out", status=2, says="--held-out")
        self.fails(*COMMON, "--guard", "held-out", "--out", self.dir / "out", status=2, says="--calibration")
        results = self.run_json(*COMMON, "--preset", "best", "--calibration", one, "--out", self.dir / "out")["results"]
        self.assertNotIn("guard", results)


if __name__ == "__main__":
    unittest.main()
