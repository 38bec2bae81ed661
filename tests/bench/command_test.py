"""scripts/bench's Python side, used wrongly: one line, before anything is measured."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

STORED = Path(__file__).parent / "data" / "results.json"


def check(*arguments):
    command = [sys.executable, "-m", "peers", "--check", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


class Command(unittest.TestCase):
    def test_right_use_says_nothing(self):
        for arguments in ((), ("--quick", "--bar"), ("--threads", "2"), ("--report-only", STORED)):
            result = check(*arguments)
            self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))

    def test_wrong_use_is_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "frob.txt"
            path.write_text("frob\n")
            cases = {
                ("--shapes", path): f"bench: {path}:1: 'frob' is not a problem string as d512_h8_f32:b32_q50_kv50\n",
                ("--report-only", path): f"bench: {path} is not JSON: Expecting value in line 1\n",
                ("--bar-rows", path): f"bench: {path} is not JSON: Expecting value in line 1\n",
            }
            for arguments, message in cases.items():
                result = check(*arguments)
                self.assertEqual((result.returncode, result.stderr), (1, message))
        for threads in ("0", "two", "1,,2"):
            result = check("--threads", threads)
            self.assertEqual(result.returncode, 2)
            self.assertTrue(result.stderr.endswith(f"'{threads}' is not a list of thread counts as 1,2\n"))


if __name__ == "__main__":
    unittest.main()
