"""The report, opened in a browser: no script fails, every figure is drawn with all of its marks, every time is there."""

import importlib.util
import sys
import unittest
from pathlib import Path

import browser
from peers import bar, catalog, results

STORED = Path(__file__).parent / "data" / "results.json"
SKIPPED = 77  # for ctest


class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        from peers import figures, report

        cls.found = results.read(STORED)
        cls.html = report.page(cls.found, bar.peer_rows(cls.found))
        cls.figures = figures.figures(cls.found)
        cls.page = browser.Page(cls.html)

    def test_no_script_fails(self):
        self.assertTrue(self.page.loaded)
        self.assertEqual(self.page.failures, "")
        self.assertEqual(self.page.console, [])

    def test_a_script_that_fails_would_be_seen(self):
        broken = browser.Page(self.html.replace("</body>", "<script>frob()</script></body>"))
        self.assertIn("frob is not defined", broken.failures)
        self.assertTrue(broken.console)

    def test_nothing_is_loaded_from_elsewhere(self):
        elements = [e for e in self.page.document.root.all() if e.tag in ("script", "link", "img", "iframe")]
        places = [e.attributes.get("src") or e.attributes.get("href") or "" for e in elements]
        self.assertEqual([place for place in places if place and not place.startswith("data:")], [])

    def test_every_figure_is_drawn(self):
        names = [figure.name for figure in self.figures]
        wanted = ["times-1", "advantage-1", "times-2", "advantage-2", "peak", "scaling"]
        self.assertEqual(names, wanted)
        for figure in self.figures:
            element = self.page.document.by_id(f"figure-{figure.name}")
            self.assertIsNotNone(element, figure.name)
            self.assertTrue(element.with_class("main-svg"), figure.name)

    @staticmethod
    def has_extent(path):
        return path.attributes.get("d", "M0,0Z") != "M0,0Z"

    def test_every_time_is_a_bar(self):
        from peers import figures

        for threads in (1, 2):
            element = self.page.document.by_id(f"figure-times-{threads}")
            times = sum(
                "ms_best" in entry
                for row in results.timed_rows(self.found, threads)
                for name, entry in row["entries"].items()
                if catalog.BY_ID[name] in figures.DRAWN
            )
            bars = [mark for mark in element.with_class("point") if any(map(self.has_extent, mark.children))]
            self.assertEqual(len(bars), times)

    def test_every_row_has_its_ratio(self):
        for threads in (1, 2):
            element = self.page.document.by_id(f"figure-advantage-{threads}")
            bars = element.with_class("bars")[0].with_class("point")
            self.assertEqual(len(bars), len(results.timed_rows(self.found, threads)))

    def test_every_speedup_is_a_mark(self):
        element = self.page.document.by_id("figure-scaling")
        marks = [mark for trace in element.with_class("scatter") for mark in trace.with_class("point")]
        self.assertGreaterEqual(len(marks), 4 * 4)

    def test_every_time_is_in_the_table(self):
        from peers.report import milliseconds

        for threads in (1, 2):
            text = self.page.document.by_id(f"times-table-{threads}").text()
            for row in results.timed_rows(self.found, threads):
                self.assertIn(row["shape"], text)
                for entry in row["entries"].values():
                    if "ms_best" in entry and entry is not row["entries"].get(catalog.OURS_WITHOUT_PROBS):
                        self.assertIn(milliseconds(entry["ms_best"]), text)
        self.assertIn("failed: took longer than 240 s", self.page.document.by_id("times-table-2").text())

    def test_who_is_absent_stands_with_the_reason(self):
        text = self.page.document.by_id("absent-table").text()
        for row in results.timed_rows(self.found):
            for name, entry in row["entries"].items():
                if "ms_best" not in entry:
                    self.assertIn(catalog.BY_ID[name].title, text)
                    self.assertIn(entry.get("absent") or entry.get("error"), text)

    def test_the_bar_has_every_row(self):
        text = self.page.document.by_id("bar-table").text()
        for row in bar.peer_rows(self.found):
            self.assertIn(row["row"], text)


if __name__ == "__main__":
    if importlib.util.find_spec("plotly") is None:
        print("skipped: no plotly in .venv; scripts/setup --tests installs it")
        sys.exit(SKIPPED)
    if browser.find() is None:
        print("skipped: no chromium; scripts/setup --tests installs it, as root")
        sys.exit(SKIPPED)
    unittest.main()
