"""curvq bench gemm: rows that agree with themselves, and wrong shapes and formats."""

import unittest

from support import CliTest

SHAPES = ["--shapes", "1,48,96", "--shapes", "5,33,64"]


class BenchGemm(CliTest):
    def test_rows_hold_what_they_say(self):
        document = self.run_json("bench", "gemm", *SHAPES, "--formats", "nvfp4,int8", "--rounds", "20",
                                 "--threads", "1")
        results = document["results"]
        limits = results["limits"]
        self.assertEqual(results["threads"], 1)
        self.assertEqual([(row["kernel"], row["format"].split()[0], row["m"], row["n"], row["k"])
                          for row in results["rows"]],
                         [(kernel, form, *shape) for shape in ((1, 48, 96), (5, 33, 64))
                          for form, kernels in (("nvfp4", ("exact", "bf16", "a15", "a8")), ("int8", ("exact", "bf16")))
                          for kernel in kernels])
        for row in results["rows"]:
            with self.subTest(row):
                ops = 2 * row["m"] * row["n"] * row["k"]
                self.assertAlmostEqual(row["gflops"], 1e-9 * ops / row["seconds"], delta=1e-9 * row["gflops"])
                self.assertAlmostEqual(row["weight_gbps"], 1e-9 * row["weight_bytes"] / row["seconds"],
                                       delta=1e-9 * row["weight_gbps"])
                floats = limits["float_gflops"]
                peak = {"exact": floats, "bf16": limits["bf16_gflops"] or floats}.get(row["kernel"], limits["byte_gops"])
                done = ops * (2 if row["kernel"] == "a15" else 1)
                least = max(row["weight_bytes"] / limits["read_gbps"], done / peak) / 1e9
                self.assertAlmostEqual(row["limit_ratio"], least / row["seconds"], delta=1e-9)
                self.assertGreater(row["max_error"], 0 if row["kernel"] == "exact" else 1e-6)
                self.assertLess(row["max_error"], 1e-6 if row["kernel"] == "exact" else 2e-2)

    def test_report_holds_the_rooflines(self):
        page = self.dir / "gemm.html"
        self.run_curvq("bench", "gemm", *SHAPES, "--formats", "mxfp4", "--rounds", "20", "--report", page)
        text = page.read_text()
        self.assertIn("Roofline, float32 inputs", text)
        self.assertIn("Roofline, integer inputs", text)
        self.assertIn("exact mxfp4", text)

    def test_its_options_are_for_gemm(self):
        for what, option in (("hvp", ["--shapes", "1,4096,4096"]), ("formats", ["--formats", "nvfp4"]),
                             ("trace", ["--report", "x.html"]), ("eigen", ["--model-gpu"])):
            self.fails("bench", what, *option, status=2, says=[option[0], "bench gemm"])

    def test_wrong_shapes_and_formats(self):
        for arguments, message in (
                (["--shapes", "1,48"], "--shapes '1,48' is not M,N,K"),
                (["--shapes", "1,48,x"], "is not M,N,K"),
                (["--shapes", "0,48,96"], "from 1 on"),
                (["--shapes", "1,48,100", "--formats", "nvfp4"], "100"),
                (["--formats", "fp3"], "fp3"),
                (["some-model"], "takes neither MODEL")):
            with self.subTest(arguments):
                self.fails("bench", "gemm", *arguments, status=2, says=message)


if __name__ == "__main__":
    unittest.main()
