"""A results file: everything that a run measured, and where and when. Checked on reading, since people keep and edit them."""

import json
import math

from . import catalog

SCHEMA = 1
TOP = {"schema": int, "machine": dict, "date": str, "commit": str, "versions": dict, "rows": list}
ROW = {"shape": str, "threads": int, "operations": (int, float), "probe_gflops": (int, float), "entries": dict}
TIMED = ("ms_best", "ms_median", "peak_fraction", "peak_fraction_median")


class ResultsError(ValueError):
    pass


def check_fields(what, where, fields):
    if not isinstance(what, dict):
        raise ResultsError(f"{where} is not an object")
    for name, kind in fields.items():
        if name not in what:
            raise ResultsError(f"{where} has no {name}")
        if not isinstance(what[name], kind):
            raise ResultsError(f"{name} of {where} is {type(what[name]).__name__}")


def check_entry(entry, where):
    if not isinstance(entry, dict):
        raise ResultsError(f"{where} is not an object")
    if any(isinstance(entry.get(name), str) for name in ("absent", "error")):
        return
    for name in TIMED:
        value = entry.get(name)
        if not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
            raise ResultsError(f"{name} of {where} is not a positive number")


def check(results):
    check_fields(results, "results file", TOP)
    if results["schema"] != SCHEMA:
        raise ResultsError(f"results file of schema {results['schema']}, this reads {SCHEMA}")
    if not results["rows"]:
        raise ResultsError("results file has no rows")
    for number, row in enumerate(results["rows"], 1):
        check_fields(row, f"row {number}", {"shape": str, "threads": int})
        where = f"'{row['shape']}' on {row['threads']} threads"
        if "failed" in row:
            continue
        check_fields(row, where, ROW)
        for name, entry in row["entries"].items():
            if name not in catalog.BY_ID:
                raise ResultsError(f"unknown entry '{name}' of {where}")
            check_entry(entry, f"{name} of {where}")
        if "ms_best" not in row["entries"].get(catalog.OURS, {}):
            raise ResultsError(f"{where} has no time of {catalog.OURS}")


def read(path):
    try:
        with open(path) as file:
            results = json.load(file)
    except OSError as error:
        raise ResultsError(f"cannot read {path}: {error.strerror}") from None
    except json.JSONDecodeError as error:
        raise ResultsError(f"{path} is not JSON: {error.msg} in line {error.lineno}") from None
    try:
        check(results)
    except ResultsError as error:
        raise ResultsError(f"{path}: {error}") from None
    return results


def write(results, path):
    """All or nothing."""
    check(results)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(results, indent=1) + "\n")
    part.replace(path)


def time_of(row, name, field="ms_best"):
    """Milliseconds, or None where the row has no time of it."""
    return row.get("entries", {}).get(name, {}).get(field)


def timed_rows(results, threads=None):
    rows = [row for row in results["rows"] if "failed" not in row]
    return [row for row in rows if threads is None or row["threads"] == threads]


def thread_counts(results):
    return sorted({row["threads"] for row in results["rows"]})


def fastest_peer(row, field="ms_best"):
    """(id, milliseconds), or None where no peer ran."""
    times = [(time_of(row, column.id, field), column.id) for column in catalog.RIVALS]
    times = [pair for pair in times if pair[0] is not None]
    if not times:
        return None
    time, name = min(times)
    return name, time


def advantage(row, field="ms_best"):
    """How many times longer the fastest peer takes; None without peers. Above 1: attnc is the fastest."""
    fastest = fastest_peer(row, field)
    return None if fastest is None else fastest[1] / time_of(row, catalog.OURS, field)


def geometric_mean(values):
    values = list(values)
    if not values or min(values) <= 0:
        raise ResultsError("a geometric mean is of positive numbers, at least one")
    return math.exp(math.fsum(map(math.log, values)) / len(values))
