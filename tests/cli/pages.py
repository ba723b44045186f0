"""Pages that reports write, as elements and in a browser."""

import html.parser
import shutil
import subprocess

from support import CliTest

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


class PageTest(CliTest):
    def browse(self, path, *arguments):
        # Root has no sandbox to start it in; the page is our own.
        command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={self.dir / 'profile'}",
                   "--virtual-time-budget=2000", *arguments, f"file://{path}"]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout

    def look_at(self, path, title):
        """The elements that a browser makes of the page, once it has drawn it."""
        dom = self.browse(path, "--dump-dom")
        self.assertIn(title, dom)
        image = self.dir / "page.png"
        self.browse(path, f"--screenshot={image}", "--window-size=1100,4200")
        self.assertEqual(image.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")
        self.assertGreater(image.stat().st_size, 50000)  # a blank page has 10 kB
        return Elements(dom)

    def check_drawing(self, elements):
        for bar in elements.of("rect", "bar"):
            self.assertGreaterEqual(float(bar["width"]), 0)
        for path in elements.of("path"):
            self.assertNotIn("nan", path["d"])
        self.assertEqual(elements.of("script"), [])
        self.assertEqual([attributes for _, attributes in elements.found if "src" in attributes or "href" in attributes], [])
