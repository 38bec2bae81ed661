"""One self-contained page: what was measured, in a table a person can read and in figures."""

from html import escape

from plotly.offline import get_plotlyjs

from . import bar, catalog, results
from .figures import figures, threads_text

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #212529; margin: 0 auto; padding: 1.5rem; max-width: 1320px; }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; } h2 { font-size: 1.2rem; margin: 2.2rem 0 .3rem; }
p { margin: .3rem 0 .7rem; color: #495057; max-width: 75em; }
.cards { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1rem 0; }
.card { border: 1px solid #dee2e6; border-radius: 8px; padding: .6rem 1rem; min-width: 9rem; }
.card b { display: block; font-size: 1.5rem; font-weight: 600; } .card span { color: #495057; font-size: .85rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .82rem; font-variant-numeric: tabular-nums; }
th, td { padding: .28rem .55rem; border-bottom: 1px solid #e9ecef; text-align: right; white-space: nowrap; }
th { vertical-align: bottom; border-bottom: 2px solid #adb5bd; font-weight: 600; white-space: normal; }
th:first-child, td:first-child, .left td, .left th { text-align: left; } td small { color: #868e96; }
.ours { background: #fff4e6; font-weight: 600; } .fastest { background: #ebfbee; }
.behind { color: #c92a2a; font-weight: 600; } .ahead { color: #2b8a3e; font-weight: 600; } .none { color: #adb5bd; }
code { font-size: .95em; }
"""


def write(found, bar_rows, path):
    """`bar_rows` may be empty: then the page has no bar."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(found, bar_rows), encoding="utf-8")


def page(found, bar_rows):
    parts = [head(found), cards(found)]
    for threads in results.thread_counts(found):
        parts.append(times_table(found, threads))
    for figure in figures(found):
        options = {"displayModeBar": False, "responsive": True}
        drawing = figure.drawing.to_html(
            full_html=False, include_plotlyjs=False, div_id=f"figure-{figure.name}", config=options
        )
        parts.append(f"<h2>{escape(figure.heading)}</h2><p>{escape(figure.text)}</p>{drawing}")
    if bar_rows:
        parts.append(bar_table(bar_rows))
    parts += [absent_table(found), how_measured()]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>attnc beside other libraries</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>{STYLE}</style><script>{get_plotlyjs()}</script></head><body>{''.join(parts)}</body></html>\n"
    )


def head(found):
    machine = found["machine"]
    caches = ", ".join(f"{name} {size}" for name, size in machine.get("caches", {}).items())
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    lines = [
        f"{machine.get('cpu', '')}, {machine.get('cores', '?')} cores, {machine.get('memory_gib', '?')} GiB; {caches}",
        f"{found['date']}, commit {found['commit']}; {versions}",
    ]
    return "<h1>attnc beside other libraries</h1>" + "".join(f"<p>{escape(line)}</p>" for line in lines)


def cards(found):
    made = []
    for threads in results.thread_counts(found):
        rows = results.timed_rows(found, threads)
        ratios = [ratio for ratio in map(results.advantage, rows) if ratio is not None]
        where = threads_text(threads)
        if ratios:
            mean = results.geometric_mean(ratios)
            made.append((f"{mean:.2f} ×", f"the fastest peer's time, geometric mean, {where}"))
            ahead = sum(ratio > 1 for ratio in ratios)
            made.append((f"{ahead} of {len(ratios)}", f"shapes where attnc is the fastest, {where}"))
    return '<div class="cards">' + "".join(f'<div class="card"><b>{a}</b><span>{b}</span></div>' for a, b in made) + "</div>"


def milliseconds(value):
    return f"{value:.3f}" if value < 10 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def times_table(found, threads):
    rows = [row for row in found["rows"] if row["threads"] == threads]
    columns = [c for c in catalog.PEERS if any(results.time_of(row, c.id) is not None for row in rows)]
    titles = ["shape", "attnc, ms", "of peak", "against the fastest peer", *(column.title for column in columns)]
    lines = "".join(times_row(row, columns) for row in rows)
    heads = "".join(f"<th>{escape(title)}</th>" for title in titles)
    return (
        f"<h2>Times, {threads_text(threads)}</h2><p>Milliseconds of a call, the best of many; below a peer's time how many "
        "times it is attnc's. The fastest of a row is shaded.</p>"
        f'<div class="wide"><table id="times-table-{threads}"><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>'
    )


def times_row(row, columns):
    name = f"<td><code>{escape(row['shape'])}</code><br><small>{escape(row.get('model', ''))}</small></td>"
    if "failed" in row:
        return f'<tr>{name}<td colspan="{3 + len(columns)}" class="behind">failed: {escape(row["failed"])}</td></tr>'
    ours = row["entries"][catalog.OURS]
    advantage = results.advantage(row)
    fastest = results.fastest_peer(row)
    cells = [f'<td class="ours">{milliseconds(ours["ms_best"])}</td><td>{ours["peak_fraction"]:.2f}</td>']
    if advantage is None:
        cells.append('<td class="none">–</td>')
    else:
        cells.append(f'<td class="{"ahead" if advantage > 1 else "behind"}">{advantage:.2f} ×</td>')
    for column in columns:
        entry = row["entries"].get(column.id, {})
        if "ms_best" not in entry:
            reason = entry.get("absent") or entry.get("error") or "not measured"
            word = "error" if "error" in entry and isinstance(entry["error"], str) else "–"
            cells.append(f'<td class="none" title="{escape(reason)}">{word}</td>')
            continue
        shade = ' class="fastest"' if advantage <= 1 and column.id == fastest[0] else ""
        ratio = entry["ms_best"] / ours["ms_best"]
        cells.append(f"<td{shade}>{milliseconds(entry['ms_best'])}<br><small>{ratio:.2f} ×</small></td>")
    return f"<tr>{name}{''.join(cells)}</tr>"


def bar_table(rows):
    lines = "".join(
        f"<tr><td>{escape(one['row'])}</td><td>{bar.figure(one['measured'])}</td><td>{escape(bar.asked(one))}</td>"
        f'<td class="{"ahead" if one["holds"] else "behind"}">{"holds" if one["holds"] else "short"}</td>'
        f"<td>{escape(one.get('note', ''))}</td></tr>"
        for one in rows
    )
    heads = "".join(f"<th>{title}</th>" for title in ("", "measured", "bar", "", ""))
    return f'<h2>The bar</h2><div class="wide"><table id="bar-table"><tr>{heads}</tr>{lines}</table></div>'


def absent_table(found):
    """Which peer has no time where, and why; equal reasons together."""
    reasons = {}
    for row in results.timed_rows(found):
        for column in catalog.PEERS:
            if results.time_of(row, column.id) is None:
                reasons.setdefault((column.title, bar.reason(row, column.id)), []).append(row["shape"])
    if not reasons:
        return "<h2>Absent peers</h2><p>None: every peer ran every shape.</p>"
    lines = ""
    for (title, reason), shapes in reasons.items():
        names = list(dict.fromkeys(shapes))
        where = ", ".join(names) if len(names) <= 3 else f"{len(names)} shapes"
        lines += f"<tr><td>{escape(title)}</td><td>{escape(reason)}</td><td>{escape(where)}</td></tr>"
    return f'<h2>Absent peers</h2><div class="wide"><table id="absent-table" class="left">{lines}</table></div>'


def how_measured():
    return (
        "<h2>How it was measured</h2><p>One process for a shape and a number of threads. Everybody gets the same float32 "
        "weights and tokens; attnc's result is compared with float64, every peer's with attnc's, and only those that agree "
        "are timed. Then they take turns, each beside a probe of the multiply-add rate: calls that warm the caches, calls "
        "that count. Peak is the probe's best rate in that process.</p>"
    )
