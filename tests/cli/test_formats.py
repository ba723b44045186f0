"""curvq formats."""

import unittest

from support import CliTest


class Formats(CliTest):
    def test_table_and_json(self):
        text = self.run_curvq("formats").stdout
        for part in ["A/15", "A/14", "A/255", "A/254", "6.25 %", "12.5 %", "A/5.667", "0 0.5 1 1.5 2 3 4 6"]:
            self.assertIn(part, text)
        formats = self.run_json("formats")["results"]["formats"]
        self.assertEqual({f["name"] for f in formats},
                         {"int4", "int8", "fp8", "mxfp4 floor", "mxfp4 even", "mxfp4 ceil", "mxfp4 rceil", "nvfp4"})

    def test_report(self):
        page = self.dir / "formats.html"
        self.run_curvq("formats", "--report", page)
        text = page.read_text()
        self.assertIn("error / A", text)
        self.assertGreater(text.count("<svg"), 10)


if __name__ == "__main__":
    unittest.main()
