"""scripts/tune-shipped with a stand-in for attnc that answers at once: what is asked, what is skipped, what fails."""

import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TARGET = "x86-64-linux"
LAYERS = ("d512_h4_f32", "d1024_h8_f32")

# Logs how it was called; --json and --db get what the test put into answers.json.
STAND_IN = """#!{python}
import json, re, signal, sys, time
from pathlib import Path
sys.path.insert(0, "{bench}")
from peers import machine
folder = Path("{folder}")
words = sys.argv[1:]
answers = json.loads((folder / "answers.json").read_text())
after = lambda option: words[words.index(option) + 1]
cpu = machine.cpu_fields().get("model name", "")
if words == ["list", "--targets"]:
    print("x86-64-linux                any x86-64 CPU")
    print("cpu                         all of these")
elif words[:2] == ["db", "check"]:
    for line in Path(words[2]).read_text().splitlines():
        record = json.loads(line)
        print(f"  {{answers['state']:<11}}{{record['config']}} at {{' '.join(record['sizes'])}} on {{cpu}}, 1 thread, {{record['effort']}}, 2026-01-01 for x")
else:
    with (folder / "log").open("a") as log:
        log.write(json.dumps(words) + "\\n")
    problems = [word for word in words if ":" in word]
    layer = problems[0].split(":")[0]
    if layer == answers.get("slow"):
        time.sleep(60)
    if "--json" in words:
        kind = "random" if "--random" in words else after("--effort")
        Path(after("--json")).write_text(json.dumps(answers[kind]))
        sys.exit(1)
    key = lambda sizes: [int(number) for number in re.findall(r"\\d+", sizes)]
    record = {{"config": layer, "sizes": sorted((p.split(":")[1] for p in problems), key=key), "n": answers.get("n"),
              "effort": after("--effort"), "threads": 1, "machine": {{"cpu": cpu}}}}
    database = Path(after("--db"))
    kept = database.read_text().splitlines() if database.exists() else []
    of_layer = lambda line: (json.loads(line)["config"], json.loads(line)["machine"]) == (layer, record["machine"])
    if "stays" in answers and any(map(of_layer, kept)):  # the record that is there was the faster one
        sys.exit(0)
    kept = [line for line in kept if not of_layer(line)]
    database.write_text("\\n".join([*kept, json.dumps(record)]) + "\\n")
"""


def row(kernel="attend", low=1.0, faster="even", seconds=30, finished=True):
    ratio = {"median": low + 0.01, "low": low, "high": low + 0.02, "samples": 61}
    return {"kernel": kernel, "points": 9, "tried": 9, "ratio": ratio, "faster": faster, "seconds": seconds,
            "finished": finished}


class TuneShipped(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name)
        (self.folder / "db").mkdir()
        attnc = self.folder / "attnc"
        attnc.write_text(STAND_IN.format(python=sys.executable, bench=ROOT / "bench", folder=self.folder))
        attnc.chmod(0o755)
        self.answers = {"state": "ok", "random": {"kernels": [row(), row("project_out")]},
                        "quick": {"kernels": [row()], "allowed": 1.05},
                        "measure": {"kernels": [row()], "allowed": 1.005}}

    def tearDown(self):
        self.temporary.cleanup()

    def run_script(self, *arguments):
        (self.folder / "answers.json").write_text(json.dumps(self.answers))
        command = [ROOT / "scripts/tune-shipped", "--attnc", self.folder / "attnc", "--state", self.folder / "state",
                   "--db", self.folder / "db", *arguments]
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False,
                              env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})

    def calls(self):
        """Those since the last time that this was asked."""
        log = self.folder / "log"
        calls = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        log.unlink(missing_ok=True)
        return calls

    def tuned(self):
        return [call[1].split(":")[0] for call in self.calls()]

    def test_tunes_each_layer_of_the_grid_once(self):
        result = self.run_script()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(result.stdout.endswith("all layers are done\n"))
        calls = self.calls()
        problems = [problem for call in calls for problem in call if ":" in problem]
        wanted = set()
        for name in ("layers", "models"):
            for line in (ROOT / f"bench/shapes/{name}.txt").read_text().splitlines():
                wanted.add(line.split()[0])
        self.assertEqual(sorted(problems), sorted(wanted))
        layers = [call[1].split(":")[0] for call in calls]
        self.assertEqual(len(set(layers)), len(layers))
        for call in calls:
            options = call[call.index("--no-records"):]
            self.assertEqual(options, ["--no-records", "--effort", "measure", "--threads", "1", "--target", TARGET,
                                       "--db", str(self.folder / f"db/{TARGET}.jsonl"),
                                       "--journal", str(self.folder / f"state/{TARGET}.journal")])
        self.assertEqual(self.run_script().returncode, 0)
        self.assertEqual(self.calls(), [])

    def test_goes_on_where_the_time_was_up(self):
        self.answers["slow"] = LAYERS[0]
        begin = time.monotonic()
        result = self.run_script("--time-limit", "4s", *LAYERS)
        self.assertLess(time.monotonic() - begin, 30)
        self.assertEqual(result.returncode, 1)
        self.assertTrue(result.stdout.endswith("the time is up; the same command goes on\n"), result.stdout)
        self.assertEqual(self.tuned(), ["d1024_h8_f32", "d512_h4_f32"])
        del self.answers["slow"]
        self.assertEqual(self.run_script(*LAYERS).returncode, 0)
        self.assertEqual(self.tuned(), ["d512_h4_f32"])
        listed = self.run_script("--list", *LAYERS).stdout
        self.assertEqual(listed.count("  done  "), 2)

    def test_tunes_again_what_is_of_other_code(self):
        self.run_script(*LAYERS)
        self.calls()
        self.answers["state"] = "unverified"
        self.run_script(*LAYERS)
        self.assertEqual(len(self.tuned()), 2)

    def test_a_fast_record_of_other_code_goes(self):
        database = self.folder / f"db/{TARGET}.jsonl"
        self.answers["n"] = "old"
        self.run_script(*LAYERS)
        elsewhere = json.loads(database.read_text().splitlines()[0]) | {"machine": {"cpu": "another"}}
        database.write_text(database.read_text() + json.dumps(elsewhere) + "\n")
        self.answers |= {"state": "unverified", "stays": True, "n": "new"}
        self.run_script(*LAYERS)
        records = [json.loads(line) for line in database.read_text().splitlines()]
        self.assertEqual(sorted(record["n"] for record in records), ["new", "new", "old"])
        self.assertEqual([record["n"] for record in records if record["machine"]["cpu"] == "another"], ["old"])

    def test_tunes_again_with_more_effort_and_not_with_less(self):
        efforts = lambda: [call[call.index("--effort") + 1] for call in self.calls()]
        self.assertEqual(self.run_script("--effort", "quick", *LAYERS).returncode, 0)
        self.assertEqual(efforts(), ["quick"] * 2)
        self.run_script("--effort", "quick", *LAYERS)
        self.assertEqual(efforts(), [])
        self.run_script(LAYERS[0])
        self.assertEqual(efforts(), ["measure"])
        self.run_script("--effort", "quick", *LAYERS)
        self.assertEqual(efforts(), [])
        self.assertEqual(self.run_script("--effort", "estimate").returncode, 2)

    def check(self):
        return self.run_script("--check", LAYERS[0])

    def test_checks_every_kernel_once(self):
        self.run_script(LAYERS[0])
        self.calls()
        result = self.check()
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("0 failed, 0 not known yet\n", result.stdout)
        self.assertRegex(result.stdout, rf"{TARGET}  d512_h4_f32  project_out  1\.010 \(1\.000\.\.1\.020\) of 9  ")
        asked = [(call[call.index("--effort") + 1], call[call.index("--kernel") + 1]) for call in self.calls()
                 if "--detuned" in call]
        self.assertEqual(asked, [("quick", "attend"), ("quick", "project_out"), ("measure", "attend"),
                                 ("measure", "project_out")])
        # What is known is not asked again, until there is another record.
        self.assertEqual(self.check().returncode, 0)
        self.assertEqual(self.calls(), [])
        self.answers["n"] = 2
        self.answers["state"] = "unverified"
        self.run_script(LAYERS[0])
        self.calls()
        self.check()
        self.assertEqual(len(self.calls()), 5)

    def test_fails_where_a_record_does_not_hold(self):
        cases = {"random": ({"kernels": [row(faster="other"), row("project_out")]}, 1),
                 "quick": ({"kernels": [row(low=1.06)], "allowed": 1.05}, 2),
                 "measure": ({"kernels": [row(low=1.006)], "allowed": 1.005}, 2)}
        for kind, (answer, failures) in cases.items():
            with self.subTest(kind):
                self.tearDown()
                self.setUp()
                self.run_script(LAYERS[0])
                self.answers[kind] = answer
                result = self.check()
                self.assertEqual(result.returncode, 1)
                self.assertIn(f"{failures} failed, 0 not known yet\n", result.stdout)
                self.assertEqual(result.stdout.count("FAILS"), failures)

    def test_a_quick_search_has_two_minutes(self):
        self.run_script(LAYERS[0])
        self.answers["quick"] = {"kernels": [row(seconds=121)], "allowed": 1.05}
        self.answers["measure"] = {"kernels": [row(seconds=700)], "allowed": 1.005}
        self.assertIn("2 failed, 0 not known yet\n", self.check().stdout)

    def test_says_what_is_not_known_yet(self):
        self.run_script(LAYERS[0])
        self.answers["slow"] = LAYERS[0]
        result = self.run_script("--check", "--time-limit", "2s", LAYERS[0])
        self.assertEqual(result.returncode, 1)
        self.assertIn("0 failed, 3 not known yet; the time is up, the same command goes on\n", result.stdout)

    def test_wrong_use_is_one_line(self):
        result = self.run_script("d5_h1_f32")
        self.assertEqual(result.returncode, 1)
        self.assertTrue(result.stderr.startswith("tune-shipped: the grid has no layer d5_h1_f32: it has d1024_h4_f32, "))
        self.assertEqual(result.stderr.count("\n"), 1)
        self.assertEqual(self.run_script("--check").stderr, "tune-shipped: there are no records to check\n")
        result = self.run_script("--time-limit", "soon")
        self.assertEqual(result.returncode, 2)
        self.assertTrue(result.stderr.endswith("'soon' is not of the form 90s, 10m or 1.5h\n"))


if __name__ == "__main__":
    unittest.main()
