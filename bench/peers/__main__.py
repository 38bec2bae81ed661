"""scripts/bench, once everything is installed and built."""

import argparse
import sys
from pathlib import Path

from . import bar, results, run
from .shapes import ShapeError, read_shapes

ROOT = Path(__file__).resolve().parents[2]
SHAPES = ROOT / "bench" / "shapes"
QUICK_MINUTES, MINUTES = 4, 25


def thread_counts(text):
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = [0]
    if min(counts) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of thread counts as 1,2")
    return counts


def arguments():
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description="attnc's layers beside other libraries', verified equal first."
    )
    parser.add_argument("--quick", action="store_true", help="a few shapes, in a few minutes")
    parser.add_argument("--shapes", type=Path, metavar="FILE", help="shapes of this file or folder; default: bench/shapes")
    parser.add_argument("--threads", type=thread_counts, default=[1, 2], metavar="N,…", help="default: 1,2")
    parser.add_argument("--minutes", type=float, help=f"for the measurements; default: {MINUTES}, quick {QUICK_MINUTES}")
    parser.add_argument("--bar", action="store_true", help="print what is asked for beside what was measured")
    parser.add_argument("--bar-rows", type=Path, action="append", default=[], metavar="JSON", help="rows of other programs")
    parser.add_argument("--report-only", type=Path, metavar="JSON", help="no measurements: those of this results file")
    parser.add_argument("--json", type=Path, help="default: bench/results/MACHINE.json; build/bench with --quick or --shapes")
    parser.add_argument("--html", type=Path, help="default: build/bench/report.html")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release", help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)  # the arguments and the files they name
    options = parser.parse_args()
    if options.minutes is None:
        options.minutes = QUICK_MINUTES if options.quick else MINUTES
    return options


def shapes_of(options):
    return read_shapes(options.shapes or (SHAPES / "quick.txt" if options.quick else SHAPES))


def check(options):
    """What can be wrong with the command line, before anything takes long."""
    if options.report_only:
        results.read(options.report_only)
    else:
        shapes_of(options)
    for path in options.bar_rows:
        bar.read_rows(path)


def measured(options):
    folder = ROOT / "build" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    whole = not options.quick and options.shapes is None
    shapes = shapes_of(options)
    tree = {
        "root": ROOT,
        "attnc": options.build / "tree" / "bin" / "attnc",
        "objects": options.build / "bench" / "peers",
        "folder": folder,
    }
    found = run.run(shapes, options.threads, options.minutes, tree)
    path = options.json or (ROOT / "bench" / "results" if whole else folder) / f"{found['machine']['name']}.json"
    results.write(found, path)
    print(f"figures: {path}")
    return found


def main():
    options = arguments()
    if options.check:
        check(options)
        return 0
    found = results.read(options.report_only) if options.report_only else measured(options)
    from . import report  # needs a plotting library

    html = options.html or ROOT / "build" / "bench" / "report.html"
    rows = bar.peer_rows(found)
    for path in options.bar_rows:
        rows += bar.read_rows(path)
    report.write(found, rows if options.bar else [], html)
    print(f"report: {html}")
    return 0 if not options.bar or bar.print_table(rows) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (ShapeError, results.ResultsError, bar.BarError, run.RunError) as error:
        sys.exit(f"bench: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
