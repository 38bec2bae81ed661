"""The bar: what is asked for beside what was measured, from every source, in one table.

A row is {"row": what is measured, "measured": figure, "bar": what it is held against, "holds": bool, "note": text}.
"""

import json

from . import catalog, results
from .shapes import parse_shape

MEAN_BAR = 1.12
PROBS_BAR = 1.35
FIELDS = {"row": str, "measured": (int, float, str), "bar": (int, float, str), "holds": bool}


class BarError(ValueError):
    pass


def row(name, measured, bar, holds, note=""):
    return {"row": name, "measured": measured, "bar": bar, "holds": holds, "note": note}


def read_rows(path):
    """Rows that another program measured: a list of them, or an object that has it as rows."""
    try:
        rows = json.loads(path.read_text())
    except OSError as error:
        raise BarError(f"cannot read {path}: {error.strerror}") from None
    except json.JSONDecodeError as error:
        raise BarError(f"{path} is not JSON: {error.msg} in line {error.lineno}") from None
    if isinstance(rows, dict):
        rows = rows.get("rows")
    if not isinstance(rows, list):
        raise BarError(f"{path} is not a list of rows")
    for number, one in enumerate(rows, 1):
        for name, kind in FIELDS.items():
            if not isinstance(one, dict) or not isinstance(one.get(name), kind):
                raise BarError(f"{path}: row {number} has no right {name}")
    return rows


def against_fastest(measured):
    """A bar of more than 1 for each row of the grid."""
    shape, threads = measured["shape"], measured["threads"]
    what = "decode" if parse_shape(shape).decode else "layer"
    name = f"{what}, {shape}, {threads_text(threads)}"
    if "failed" in measured:
        return row(name, "no time", "> 1", False, measured["failed"])
    fastest = results.fastest_peer(measured)
    if fastest is None:
        return row(name, "no peer", "> 1", False, "no peer ran")
    ratio = results.advantage(measured)
    return row(name, ratio, "> 1", ratio > 1, f"times attnc's time takes {catalog.BY_ID[fastest[0]].title}")


def threads_text(threads):
    return "1 thread" if threads == 1 else f"{threads} threads"


def mean_rows(measured):
    rows = []
    for threads in results.thread_counts(measured):
        ratios = [results.advantage(one) for one in results.timed_rows(measured, threads)]
        ratios = [ratio for ratio in ratios if ratio is not None]
        name = f"geometric mean over the grid, {threads_text(threads)}"
        if not ratios:
            rows.append(row(name, "no peer", f">= {MEAN_BAR}", False, "no peer ran"))
            continue
        mean = results.geometric_mean(ratios)
        rows.append(row(name, mean, f">= {MEAN_BAR}", mean >= MEAN_BAR, f"{len(ratios)} shapes"))
    return rows


def probs_rows(measured):
    """Per-head weights: faster than PyTorch's two ways to get them, and little slower than without."""
    rows = []
    for one in results.timed_rows(measured):
        if not parse_shape(one["shape"]).probs:
            continue
        ours = results.time_of(one, catalog.OURS)
        where = f"{one['shape']}, {threads_text(one['threads'])}"
        for peer in ("torch_eager", "torch_mha"):
            theirs = results.time_of(one, peer)
            name = f"weights of heads, {where}, over {catalog.BY_ID[peer].title}"
            if theirs is None:
                rows.append(row(name, "no time", "> 1", False, reason(one, peer)))
            else:
                rows.append(row(name, theirs / ours, "> 1", theirs > ours, "times attnc's time"))
        without = results.time_of(one, catalog.OURS_WITHOUT_PROBS)
        name = f"weights of heads, {where}, over a call without"
        if without is None:
            rows.append(row(name, "no time", f"<= {PROBS_BAR}", False))
        else:
            rows.append(row(name, ours / without, f"<= {PROBS_BAR}", ours <= PROBS_BAR * without, "times the time"))
    return rows


def reason(measured, name):
    entry = measured.get("entries", {}).get(name, {})
    return entry.get("absent") or entry.get("error") or "not measured"


def peer_rows(measured):
    """The rows of the bar that are about peers."""
    rows = [against_fastest(one) for one in measured["rows"]]
    return rows + mean_rows(measured) + probs_rows(measured)


def figure(value):
    return value if isinstance(value, str) else f"{value:.3g}" if abs(value) < 1e4 else f"{value:.0f}"


def asked(one):
    """ "<= 1.35": a row of a number alone says by at_most which way it is meant."""
    if isinstance(one["bar"], str):
        return one["bar"]
    return f"{'<=' if one.get('at_most') else '>='} {figure(one['bar'])}"


def print_table(rows):
    """All rows, those that fall short marked; returns whether all hold."""
    width = max(len(one["row"]) for one in rows)
    print(f"{'':{width}}  {'measured':>10}  {'bar':>10}")
    for one in rows:
        mark = "holds" if one["holds"] else "SHORT"
        note = one.get("note", "")
        print(f"{one['row']:{width}}  {figure(one['measured']):>10}  {asked(one):>10}  {mark}  {note}".rstrip())
    short = sum(not one["holds"] for one in rows)
    print(f"{len(rows) - short} of {len(rows)} hold")
    return short == 0
