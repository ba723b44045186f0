"""The page of curvq hessian --report, opened in a browser."""

import unittest

from pages import BROWSER, Elements, PageTest
from support import MODELS

MLP = MODELS.parent / "curvature" / "mlp_tanh_ce"


class Report(PageTest):
    def page(self, *arguments):
        path = self.dir / "report.html"
        self.run_curvq("hessian", MLP / "logits.pt", "--data", MLP / "data.safetensors", *arguments, "--report", path, "--threads", "1")
        return path

    def check_elements(self, elements):
        self.assertEqual(len(elements.of("svg", "bars")), 4)
        self.assertEqual(len(elements.of("rect", "bar")), 4 * 3)  # traces and top eigenvalues, K-FAC's too, of three layers
        self.assertEqual(len(elements.of("rect", "cell")), 9)
        self.assertEqual(len(elements.of("svg", "lines")), 5)  # density; convergence of four estimators
        self.assertEqual(len(elements.of("path", "line")), 5)
        self.assertEqual(len(elements.of("path", "band")), 5)
        self.check_drawing(elements)

    def test_elements(self):
        path = self.page("--what", "trace,diagonal,eigen,density,blocks,kfac", "--eigen-per-block")
        self.check_elements(Elements(path.read_text()))

    @unittest.skipIf(BROWSER is None, "no chromium: the page is NOT looked at in a browser (scripts/setup installs one)")
    def test_in_a_browser(self):
        path = self.page("--what", "trace,diagonal,eigen,density,blocks,kfac", "--eigen-per-block")
        self.check_elements(self.look_at(path, "Curvature of"))

    def test_exact_results_have_no_convergence(self):
        elements = Elements(self.page("--what", "trace,eigen,density", "--exact").read_text())
        self.assertEqual(len(elements.of("svg", "bars")), 2)
        self.assertEqual(len(elements.of("svg", "lines")), 1)

    def test_a_place_that_cannot_be_written_is_found_first(self):
        self.fails("hessian", MLP / "logits.pt", "--data", MLP / "data.safetensors", "--report", self.dir, status=2, says="--report")


if __name__ == "__main__":
    unittest.main()
