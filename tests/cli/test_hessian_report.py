"""The page of curvq hessian --report, opened in a browser."""

import html.parser
import shutil
import subprocess
import unittest

from support import MODELS, CliTest

MLP = MODELS.parent / "curvature" / "mlp_tanh_ce"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Elements(html.parser.HTMLParser):
    """Elements of a page as (tag, attributes)."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def of(self, tag, kind=None):
        return [attributes for name, attributes in self.found if name == tag and (kind is None or attributes.get("class") == kind)]


class Report(CliTest):
    def page(self, *arguments):
        path = self.dir / "report.html"
        self.run_curvq("hessian", MLP / "logits.pt", "--data", MLP / "data.safetensors", *arguments, "--report", path, "--threads", "1")
        return path

    def browse(self, path, *arguments):
        # Root has no sandbox to start it in; the page is our own.
        command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={self.dir / 'profile'}",
                   "--virtual-time-budget=2000", *arguments, f"file://{path}"]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout

    def check_elements(self, elements):
        self.assertEqual(len(elements.of("svg", "bars")), 4)
        self.assertEqual(len(elements.of("rect", "bar")), 4 * 3)  # traces and top eigenvalues, K-FAC's too, of three layers
        self.assertEqual(len(elements.of("rect", "cell")), 9)
        self.assertEqual(len(elements.of("svg", "lines")), 5)  # density; convergence of four estimators
        self.assertEqual(len(elements.of("path", "line")), 5)
        self.assertEqual(len(elements.of("path", "band")), 5)
        for bar in elements.of("rect", "bar"):
            self.assertGreaterEqual(float(bar["width"]), 0)
        for path in elements.of("path"):
            self.assertNotIn("nan", path["d"])
        self.assertEqual(elements.of("script"), [])
        self.assertEqual([attributes for _, attributes in elements.found if "src" in attributes or "href" in attributes], [])

    def test_elements(self):
        path = self.page("--what", "trace,diagonal,eigen,density,blocks,kfac", "--eigen-per-block")
        self.check_elements(Elements(path.read_text()))

    @unittest.skipIf(BROWSER is None, "no chromium: the page is NOT looked at in a browser (scripts/setup installs one)")
    def test_in_a_browser(self):
        path = self.page("--what", "trace,diagonal,eigen,density,blocks,kfac", "--eigen-per-block")
        dom = self.browse(path, "--dump-dom")
        self.assertIn("Curvature of", dom)
        self.check_elements(Elements(dom))
        image = self.dir / "page.png"
        self.browse(path, f"--screenshot={image}", "--window-size=1100,4200")
        self.assertEqual(image.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")
        self.assertGreater(image.stat().st_size, 50000)  # a blank page has 10 kB

    def test_exact_results_have_no_convergence(self):
        elements = Elements(self.page("--what", "trace,eigen,density", "--exact").read_text())
        self.assertEqual(len(elements.of("svg", "bars")), 2)
        self.assertEqual(len(elements.of("svg", "lines")), 1)

    def test_a_place_that_cannot_be_written_is_found_first(self):
        self.fails("hessian", MLP / "logits.pt", "--data", MLP / "data.safetensors", "--report", self.dir, status=2, says="--report")


if __name__ == "__main__":
    unittest.main()
