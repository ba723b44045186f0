"""torch.ops.curvq in the Python of the clients, beside torch's own products."""

import os
import pathlib
import subprocess
import tempfile
import unittest

import torch

LIBRARY = os.environ["CURVQ_TORCH_OPS"]
BUILT_WITH = os.environ["CURVQ_TORCH_VERSION"]
STORIES = pathlib.Path(__file__).resolve().parents[2] / "tests/data/models/stories260K"
LAYER = "model.layers.1.mlp.gate_proj"
HALF_ULP = 2.0**-24


@unittest.skipUnless(
    torch.__version__.split("+")[0] == BUILT_WITH,
    f"built with torch {BUILT_WITH}, this Python has {torch.__version__}",
)
class TorchOps(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.ops.load_library(LIBRARY)
        torch.manual_seed(1)

    def expect_product(self, out, x, weight, bias=None):
        """Within the bound of float32 sums that kernels/linear.h promises."""
        w = weight.dequantize().double()
        exact = x.double() @ w.T
        magnitude = x.double().abs() @ w.abs().T
        if bias is not None:
            exact, magnitude = exact + bias.double(), magnitude + exact.abs() + bias.double().abs()
        bound = (x.shape[-1] + 3) * HALF_ULP * magnitude
        self.assertTrue(torch.all((out.double() - exact).abs() <= bound))

    def test_products_of_all_formats(self):
        for scheme, group in [("nvfp4", None), ("mxfp4", None), ("int4", 32), ("int8", None), ("fp8", None)]:
            weight = torch.ops.curvq.quantize(torch.randn(37, 96), scheme, group)
            self.assertEqual((weight.rows(), weight.cols()), (37, 96))
            bias = torch.randn(37)
            for shape in [(96,), (5, 96), (2, 3, 96), (0, 96)]:
                with self.subTest(scheme=scheme, shape=shape):
                    x = torch.randn(*shape)
                    out = torch.ops.curvq.linear(x, weight, bias)
                    self.assertEqual(out.shape, (*shape[:-1], 37))
                    self.expect_product(out, x, weight, bias)

    def test_strides_and_bfloat16(self):
        weight = torch.ops.curvq.quantize(torch.randn(16, 64), "nvfp4")
        x = torch.randn(64, 7).T
        self.expect_product(torch.ops.curvq.linear(x, weight), x, weight)
        half = x.bfloat16()
        out = torch.ops.curvq.linear(half, weight)
        self.assertEqual(out.dtype, torch.bfloat16)
        wanted = torch.ops.curvq.linear(half.float(), weight).bfloat16()
        self.assertTrue(torch.equal(out, wanted))

    def test_rounded_inputs_move_the_result_by_half_a_step(self):
        weight = torch.ops.curvq.quantize(torch.randn(16, 64), "nvfp4")
        x, w = torch.randn(4, 64), weight.dequantize()
        exact = torch.ops.curvq.linear(x, weight)
        for inputs, steps in [("a8", 127), ("a15", 16319)]:
            moved = (torch.ops.curvq.linear(x, weight, None, inputs) - exact).abs()
            amax = x.reshape(4, 4, 16).abs().amax(-1, keepdim=True).expand(4, 4, 16).reshape(4, 64)
            bound = 0.5001 * (amax / steps) @ w.abs().T + 100 * HALF_ULP * (x.abs() @ w.abs().T)
            self.assertTrue(torch.all(moved <= bound), inputs)
            self.assertGreater(moved.max(), 0)

    def test_a_layer_of_a_checkpoint(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "nvfp4"
            command = [os.environ["CURVQ_BIN"], "quantize", STORIES, "--out", out, "--scheme", "nvfp4"]
            command += ["--method", "rtn", "--on-indivisible", "keep", "-q"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            weight = torch.ops.curvq.load(str(out), LAYER)
            self.assertEqual(weight.scheme(), "nvfp4")
            x = torch.randn(3, weight.cols())
            self.expect_product(torch.ops.curvq.linear(x, weight), x, weight)
            with self.assertRaisesRegex(RuntimeError, "is not a packed layer"):
                torch.ops.curvq.load(str(out), "lm_head")
        with self.assertRaisesRegex(RuntimeError, "is not packed"):
            torch.ops.curvq.load(str(STORIES), LAYER)

    def test_shapes_are_known_without_values(self):
        weight = torch.ops.curvq.quantize(torch.randn(8, 32), "mxfp4")
        out = torch.ops.curvq.linear(torch.empty(5, 3, 32, device="meta"), weight)
        self.assertEqual((out.device.type, out.shape, out.dtype), ("meta", (5, 3, 8), torch.float32))
        with self.assertRaisesRegex(RuntimeError, "takes 32"):
            torch.ops.curvq.linear(torch.empty(5, 33, device="meta"), weight)

    def test_bad_input_is_an_error(self):
        linear = torch.ops.curvq.linear
        weight = torch.ops.curvq.quantize(torch.randn(8, 32), "mxfp4")
        bytes_only = torch.ops.curvq.quantize(torch.randn(8, 32), "int8")
        x = torch.randn(2, 32)
        for text, call in [
            ("x ends in 31 values", lambda: linear(x[:, 1:], weight)),
            ("no dimension", lambda: linear(torch.tensor(1.0), weight)),
            ("float32 or bfloat16", lambda: linear(x.double(), weight)),
            (r"bias must be float32 \[8\]", lambda: linear(x, weight, torch.randn(7))),
            (r"bias must be float32 \[8\]", lambda: linear(x, weight, torch.randn(8).double())),
            ("inputs 'int8'", lambda: linear(x, weight, None, "int8")),
            ("leave inputs in float32", lambda: linear(x, bytes_only, None, "a8")),
            ("must be a matrix", lambda: torch.ops.curvq.quantize(torch.randn(8), "int8")),
            ("nvfp4, mxfp4", lambda: torch.ops.curvq.quantize(x, "int3")),
            ("row 1, column 2", lambda: torch.ops.curvq.quantize(x.index_put((torch.tensor(1), torch.tensor(2)), torch.tensor(float("nan"))), "int8")),
        ]:
            with self.subTest(text=text), self.assertRaisesRegex(RuntimeError, text):
                call()


if __name__ == "__main__":
    unittest.main()
