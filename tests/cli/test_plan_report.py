"""The pages of curvq plan --report and curvq quantize --report, opened in a browser."""

import unittest

from pages import BROWSER, Elements, PageTest
from support import MODELS

STORIES = MODELS / "stories260K"
IDS = STORIES / "wt2_ids_32x256.safetensors"
DATA = ("--calibration", f"{IDS}:calib_ids", "--num-samples", "5", "--threads", "1")


class PlanReport(PageTest):
    def page(self, command, *arguments):
        path = self.dir / f"{command}.html"
        self.run_curvq(command, STORIES, "--on-indivisible", "keep", *DATA, *arguments, "--report", path)
        return path

    def quantize_page(self):
        return self.page("quantize", "--out", self.dir / "out", "--sweeps", "2", "--scale-search", "hessian", "--output-factor", "fisher",
                         "--held-out", "0.2")

    def check_elements(self, elements):
        self.assertEqual(len(elements.of("svg", "bars")), 4)  # bits, predicted loss, error; plans that were measured
        self.assertIn(len(elements.of("rect", "bar")), (3 * 30 + 2, 3 * 30 + 3))
        self.assertEqual(len(elements.of("svg", "lines")), 1)
        self.assertEqual(len(elements.of("path", "line")), 3)  # best plans, uniform ones, measured
        self.check_drawing(elements)

    def check_quantize_elements(self, elements):
        self.assertEqual(len(elements.of("svg", "bars")), 2)  # error, bits
        self.assertEqual(len(elements.of("rect", "bar")), 2 * 30)
        self.assertEqual(len(elements.of("svg", "lines")), 2)  # by calibration tokens, by held-out ones
        self.assertGreaterEqual(len(elements.of("path", "line")), 4 + 3)  # rtn, gptq, two sweeps; the last of the sweeps
        self.check_drawing(elements)

    def test_elements(self):
        self.check_elements(Elements(self.page("plan", "--bits", "4.75", "--method", "rtn").read_text()))
        self.check_quantize_elements(Elements(self.quantize_page().read_text()))

    @unittest.skipIf(BROWSER is None, "no chromium: the pages are NOT looked at in a browser (scripts/setup installs one)")
    def test_in_a_browser(self):
        for title, path, check in (("Bit plan of", self.page("plan", "--bits", "4.75", "--method", "rtn"), self.check_elements),
                                   ("Quantizing", self.quantize_page(), self.check_quantize_elements)):
            check(self.look_at(path, title))

    def test_a_place_that_cannot_be_written_is_found_first(self):
        self.fails("plan", STORIES, *DATA, "--bits", "5", "--report", self.dir, status=2, says="--report")
        self.fails("quantize", STORIES, *DATA, "--out", self.dir / "out", "--report", self.dir, status=2, says="--report")


if __name__ == "__main__":
    unittest.main()
