"""Results files and the bar: what they add up to, and that wrong ones are refused in a line."""

import contextlib
import copy
import io
import json
import tempfile
import unittest
from pathlib import Path

from peers import bar, results

STORED = Path(__file__).parent / "data" / "results.json"


def stored():
    return json.loads(STORED.read_text())


class Mean(unittest.TestCase):
    def test_of_ratios(self):
        self.assertAlmostEqual(results.geometric_mean([2, 0.5]), 1)
        self.assertAlmostEqual(results.geometric_mean([1.5]), 1.5)

    def test_refuses_none_and_zero(self):
        for values in ([], [1, 0]):
            with self.assertRaisesRegex(results.ResultsError, "of positive numbers, at least one"):
                results.geometric_mean(values)


class FastestPeer(unittest.TestCase):
    def test_is_the_least_time_of_those_that_ran(self):
        row = stored()["rows"][0]
        self.assertEqual(results.fastest_peer(row), ("openvino", 27.5))
        self.assertAlmostEqual(results.advantage(row), 27.5 / 25)

    def test_is_none_where_no_peer_ran(self):
        row = {"entries": {"attnc": {"ms_best": 1}, "naive": {"absent": "too slow"}}}
        self.assertIsNone(results.fastest_peer(row))
        self.assertIsNone(results.advantage(row))


class ResultsFile(unittest.TestCase):
    def read(self, contents):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "r.json"
            path.write_text(contents if isinstance(contents, str) else json.dumps(contents))
            try:
                return results.read(path)
            except results.ResultsError as error:
                raise results.ResultsError(str(error).replace(f"{path}: ", "")) from None

    def test_writing_undoes_reading(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "new" / "r.json"
            results.write(stored(), path)
            self.assertEqual(results.read(path), stored())

    def test_wrong_ones_are_refused(self):
        def entry(found):
            return found["rows"][0]["entries"]["attnc"]

        cases = {
            "results file has no rows": lambda f: f.update(rows=[]),
            "results file has no machine": lambda f: f.pop("machine"),
            "results file of schema 9, this reads 1": lambda f: f.update(schema=9),
            "rows of results file is int": lambda f: f.update(rows=1),
            "row 1 is not an object": lambda f: f.update(rows=[7]),
            "row 1 has no threads": lambda f: f["rows"][0].pop("threads"),
            "'d512_h8_f32:b32_q50_kv50' on 1 threads has no entries": lambda f: f["rows"][0].pop("entries"),
            "ms_best of attnc of 'd512_h8_f32:b32_q50_kv50' on 1 threads is not a positive number": lambda f: entry(f).update(
                ms_best=0
            ),
            "unknown entry 'frob' of 'd512_h8_f32:b32_q50_kv50' on 1 threads": lambda f: f["rows"][0]["entries"].update(
                frob={}
            ),
            "'d512_h8_f32:b32_q50_kv50' on 1 threads has no time of attnc": lambda f: f["rows"][0]["entries"].pop("attnc"),
        }
        for message, spoil in cases.items():
            found = stored()
            spoil(found)
            with self.subTest(message), self.assertRaises(results.ResultsError) as caught:
                self.read(found)
            self.assertEqual(str(caught.exception), message)

    def test_what_is_no_json(self):
        with self.assertRaisesRegex(results.ResultsError, "is not JSON: .* in line 1$"):
            self.read("{")
        with self.assertRaisesRegex(results.ResultsError, "^results file is not an object$"):
            self.read("[]")
        with self.assertRaisesRegex(results.ResultsError, "^cannot read /nowhere.json: No such file or directory$"):
            results.read("/nowhere.json")


class Bar(unittest.TestCase):
    def rows(self, found):
        return {row["row"]: row for row in bar.peer_rows(found)}

    def test_a_row_for_each_shape_and_thread_count(self):
        rows = self.rows(stored())
        first = rows["layer, d512_h8_f32:b32_q50_kv50, 1 thread"]
        self.assertTrue(first["holds"])
        self.assertAlmostEqual(first["measured"], 1.1)
        self.assertFalse(rows["decode, d768_h12_f32_causal_cache:b1_q1_kv1024 decode, 1 thread"]["holds"])

    def test_the_mean_is_of_each_thread_count(self):
        rows = self.rows(stored())
        ratios = [results.advantage(row) for row in results.timed_rows(stored(), 1)]
        mean = rows["geometric mean over the grid, 1 thread"]
        self.assertAlmostEqual(mean["measured"], results.geometric_mean(ratios))
        self.assertEqual(mean["holds"], mean["measured"] >= 1.12)

    def test_weights_of_heads_have_their_own(self):
        rows = self.rows(stored())
        where = "weights of heads, d512_h8_f32:b32_q50_kv50 probs, 1 thread"
        self.assertTrue(rows[f"{where}, over PyTorch eager class"]["holds"])
        self.assertAlmostEqual(rows[f"{where}, over a call without"]["measured"], 34 / 25)
        self.assertFalse(rows[f"{where}, over a call without"]["holds"])

    def test_what_was_not_measured_falls_short(self):
        found = stored()
        found["rows"][0] = {"shape": found["rows"][0]["shape"], "threads": 1, "failed": "the process died: SIGSEGV"}
        row = self.rows(found)["layer, d512_h8_f32:b32_q50_kv50, 1 thread"]
        self.assertEqual((row["holds"], row["note"]), (False, "the process died: SIGSEGV"))

    def test_rows_of_other_programs_join_in(self):
        other = [{"row": "projections", "measured": 0.91, "bar": 0.93, "holds": False, "note": "128 tokens"}]
        other.append({"row": "memory", "measured": 20000, "bar": 32000, "at_most": True, "holds": True})
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.json"
            for contents in (other, {"date": "today", "rows": other}):
                path.write_text(json.dumps(contents))
                self.assertEqual(bar.read_rows(path), other)
            spoilt = copy.deepcopy(other)
            spoilt[1].pop("holds")
            path.write_text(json.dumps(spoilt))
            with self.assertRaisesRegex(bar.BarError, "rows.json: row 2 has no right holds$"):
                bar.read_rows(path)
            path.write_text("7")
            with self.assertRaisesRegex(bar.BarError, "rows.json is not a list of rows$"):
                bar.read_rows(path)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            self.assertFalse(bar.print_table(other))
        lines = [" ".join(line.split()) for line in printed.getvalue().splitlines()]
        self.assertEqual(lines[1], "projections 0.91 >= 0.93 SHORT 128 tokens")
        self.assertEqual(lines[2], "memory 20000 <= 32000 holds")
        self.assertEqual(lines[3], "1 of 2 hold")


if __name__ == "__main__":
    unittest.main()
