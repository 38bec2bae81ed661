"""The page of attnc tune, opened in a browser: nothing fails or is loaded from elsewhere, every mark lies inside its plot."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import browser

PROGRAM = Path(sys.argv.pop())
SKIPPED = 77  # for ctest


class TuneReport(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "report.html"
            environment = {**os.environ, "ATTNC_TEST_REPORT": str(path)}
            command = [PROGRAM, "--gtest_filter=Report.DrawsEveryTrialAndTheBest"]
            subprocess.run(command, env=environment, check=True, capture_output=True)
            cls.html = path.read_text(encoding="utf-8")
        cls.page = browser.Page(cls.html)

    def test_nothing_fails(self):
        self.assertTrue(self.page.loaded)
        self.assertEqual(self.page.failures, "")
        self.assertEqual(self.page.console, [])

    def test_nothing_is_loaded_from_elsewhere(self):
        elements = [e for e in self.page.document.root.all() if e.tag in ("script", "link", "img", "iframe")]
        places = [e.attributes.get("src") or e.attributes.get("href") or "" for e in elements]
        self.assertEqual([place for place in places if place and not place.startswith("data:")], [])

    def test_every_mark_lies_inside_its_plot(self):
        plots = [e for e in self.page.document.root.all() if e.tag == "svg"]
        self.assertEqual(len(plots), 6)  # of two layers, each with its trials and two fields
        for plot in plots:
            _, _, width, height = map(float, plot.attributes["viewbox"].split())
            marks = [e for e in plot.all() if e.tag == "circle"]
            self.assertGreaterEqual(len(marks), 2)
            for mark in marks:
                self.assertTrue(0 < float(mark.attributes["cx"]) < width)
                self.assertTrue(0 < float(mark.attributes["cy"]) < height)

    def test_whole_calls_are_in_the_table(self):
        tables = self.page.document.root.with_class("calls")
        self.assertEqual(len(tables), 2)
        self.assertIn("d32_h2_f32_nomask_noprobs:b1_q40_kv40", tables[0].text())


if __name__ == "__main__":
    if browser.find() is None:
        print("skipped: no Chromium")
        sys.exit(SKIPPED)
    unittest.main()
