"""The figures of the report, drawn by plotly: each a name, a heading, a sentence on how to read it, and the drawing."""

from dataclasses import dataclass

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from . import catalog, results
from .shapes import parse_shape

# Ours stands out; peers of one origin have shades of one hue.
COLOURS = {
    "attnc": "#d9480f",
    "attnc_without_probs": "#ffa94d",
    "torch_eager": "#1864ab",
    "torch_mha": "#1c7ed6",
    "torch_sdpa": "#4dabf7",
    "torch_compile": "#a5d8ff",
    "onnxruntime": "#2b8a3e",
    "onnxruntime_fused": "#8ce99a",
    "openvino": "#862e9c",
    "onednn": "#e599f7",
    "halide_adams2019": "#868e96",
    "halide_mullapudi2016": "#adb5bd",
    "halide_li2018": "#ced4da",
    "naive": "#dee2e6",
}
LINES = ("#d9480f", "#1c7ed6", "#2b8a3e", "#862e9c", "#e67700", "#0b7285", "#a61e4d", "#5f3dc4", "#495057", "#66a80f")
FONT = {"family": "system-ui, sans-serif", "size": 13, "color": "#212529"}
COLUMNS = 4
# Yardsticks that are several times slower would leave the others no room.
DRAWN = [column for column in catalog.COLUMNS if column.rival or not column.peer]
MARGIN = {"l": 10, "r": 10, "t": 30, "b": 10}


@dataclass
class Figure:
    name: str  # of the element in the page
    heading: str
    text: str
    drawing: go.Figure


def figures(found):
    """Those that the results have data for."""
    made = []
    for threads in results.thread_counts(found):
        rows = results.timed_rows(found, threads)
        if rows:
            made += [times(rows, threads), advantage(rows, threads)]
    made += filter(None, [peak(found), scaling(found)])
    return made


def threads_text(threads):
    return "1 thread" if threads == 1 else f"{threads} threads"


def short_name(row):
    """ "512/8 · 32 × 50": the shape as a person says it."""
    shape = parse_shape(row["shape"])
    heads = f"{shape.num_heads}:{shape.num_kv_heads}" if shape.num_kv_heads != shape.num_heads else shape.num_heads
    seq = shape.seq_q if shape.seq_q == shape.seq_kv else f"{shape.seq_q} of {shape.seq_kv}"
    extras = [*shape.words, *(["causal"] if shape.causal and not shape.decode else [])]
    return " ".join((f"{shape.d_model}/{heads} · {shape.batch} × {seq}", *extras))


def times(rows, threads):
    """Small multiples: the scales of shapes differ by a thousand."""
    height = -(-len(rows) // COLUMNS)
    titles = [short_name(row) for row in rows]
    drawing = make_subplots(
        height, COLUMNS, subplot_titles=titles, vertical_spacing=min(0.3 / height, 0.12), horizontal_spacing=0.05
    )
    for number, row in enumerate(rows):
        names = [c.id for c in DRAWN if results.time_of(row, c.id) is not None]
        drawing.add_trace(
            go.Bar(
                x=[catalog.BY_ID[name].title for name in names],
                y=[results.time_of(row, name) for name in names],
                marker_color=[COLOURS[name] for name in names],
                hovertemplate="%{x}: %{y:.4g} ms<extra></extra>",
                showlegend=False,
            ),
            number // COLUMNS + 1,
            number % COLUMNS + 1,
        )
    for column in catalog.COLUMNS:  # one legend for all
        if column in DRAWN and any(results.time_of(row, column.id) is not None for row in rows):
            colour = COLOURS[column.id]
            drawing.add_trace(go.Bar(x=[None], y=[None], name=column.title, marker_color=colour), 1, 1)
    drawing.update_xaxes(showticklabels=False)
    drawing.update_yaxes(rangemode="tozero", nticks=4, gridcolor="#e9ecef")
    drawing.update_annotations(font_size=12)
    drawing.update_layout(
        height=170 * height + 120,
        font=FONT,
        margin=MARGIN | {"t": 100},
        plot_bgcolor="white",
        barmode="overlay",
        bargap=0.15,
        legend={"orientation": "h", "y": 1, "yanchor": "top", "yref": "container", "x": 0, "itemclick": False},
    )
    heading = f"Time of a call, {threads_text(threads)}"
    text = "Milliseconds, the best of many calls; the autoscheduled layers and the plain loops, several times slower, are in the table only."
    return Figure(f"times-{threads}", heading, text, drawing)


def advantage(rows, threads):
    rows = [row for row in rows if results.fastest_peer(row) is not None]
    ratios = [results.advantage(row) for row in rows]
    peers = [results.fastest_peer(row)[0] for row in rows]
    drawing = go.Figure(
        go.Bar(
            y=[short_name(row) for row in rows],
            x=[ratio - 1 for ratio in ratios],
            base=1,
            orientation="h",
            marker_color=["#2f9e44" if ratio > 1 else "#e03131" for ratio in ratios],
            hovertemplate="%{y}<extra></extra>",
            showlegend=False,
        )
    )
    drawing.add_trace(
        go.Scatter(
            y=[short_name(row) for row in rows],
            x=[max(ratio, 1) for ratio in ratios],
            text=[f" {ratio:.2f} {catalog.BY_ID[peer].title}" for ratio, peer in zip(ratios, peers, strict=True)],
            mode="text",
            textposition="middle right",
            hoverinfo="skip",
            showlegend=False,
        )
    )
    drawing.add_vline(x=1, line_color="#495057")
    largest, least = max([*ratios, 1.2]), min([*ratios, 0.9])
    drawing.update_xaxes(title="time of the fastest peer / time of attnc", gridcolor="#e9ecef")
    drawing.update_xaxes(range=[least - 0.05, largest + 0.45 * (largest - least)])
    drawing.update_yaxes(autorange="reversed", automargin=True, dtick=1)
    drawing.update_layout(height=23 * len(rows) + 100, font=FONT, margin=MARGIN, plot_bgcolor="white")
    heading = f"Against the fastest peer, {threads_text(threads)}"
    text = "Right of 1: attnc is the fastest. The peer that comes closest stands beside each bar."
    return Figure(f"advantage-{threads}", heading, text, drawing)


def peak(found):
    """Of self-attention of whole sequences, by their length."""
    drawing = go.Figure()
    lines = {}
    for row in results.timed_rows(found, results.thread_counts(found)[0]):
        shape = parse_shape(row["shape"])
        if not (shape.cached or shape.cross or shape.words):
            lines.setdefault(shape.config, []).append((shape.batch * shape.seq_q, shape, row))
    for number, (config, points) in enumerate(lines.items()):
        points.sort(key=lambda point: (point[1].seq_q, point[0]))
        colour = LINES[number % len(LINES)]
        for name, dash, symbol in ((catalog.OURS, "solid", "circle"), (None, "dot", "circle-open")):
            entries = [peak_point(row, name) for _, _, row in points]
            drawing.add_trace(
                go.Scatter(
                    x=[shape.seq_q for _, shape, _ in points],
                    y=[fraction for fraction, _ in entries],
                    text=[f"{row['shape']}, {title}" for (_, _, row), (_, title) in zip(points, entries, strict=True)],
                    hovertemplate="%{text}: %{y:.3f}<extra></extra>",
                    mode="lines+markers",
                    line={"color": colour, "dash": dash},
                    marker={"symbol": symbol, "size": 7},
                    name=config if name else f"{config}, fastest peer",
                    legendgroup=config,
                    showlegend=bool(name),
                )
            )
    if not lines:
        return None
    drawing.update_xaxes(title="tokens of a sequence", type="log", gridcolor="#e9ecef", tickformat="d", dtick="D2")
    drawing.update_yaxes(title="fraction of the probe's rate", range=[0, 1], gridcolor="#e9ecef")
    drawing.update_layout(height=460, font=FONT, margin=MARGIN, plot_bgcolor="white")
    text = "Solid: attnc. Dotted: the fastest peer of each shape. 1 is what independent multiply-adds in registers reach."
    heading = f"Fraction of peak by length, {threads_text(results.thread_counts(found)[0])}"
    return Figure("peak", heading, text, drawing)


def peak_point(row, name):
    if name is None:
        fastest = results.fastest_peer(row)
        if fastest is None:
            return None, ""
        name = fastest[0]
    return row["entries"][name]["peak_fraction"], catalog.BY_ID[name].title


def scaling(found):
    """From the fewest threads to the most."""
    counts = results.thread_counts(found)
    if len(counts) < 2:
        return None
    few, many = counts[0], counts[-1]
    first = {row["shape"]: row for row in results.timed_rows(found, few)}
    pairs = [(first[row["shape"]], row) for row in results.timed_rows(found, many) if row["shape"] in first]
    if not pairs:
        return None
    drawing = go.Figure()
    for column in catalog.COLUMNS:
        points = [(short_name(a), speedup(a, b, column.id)) for a, b in pairs if speedup(a, b, column.id)]
        if not points or column not in DRAWN or column.id == catalog.OURS_WITHOUT_PROBS:
            continue
        ours = column.id == catalog.OURS
        drawing.add_trace(
            go.Scatter(
                x=[x for x, _ in points],
                y=[y for _, y in points],
                mode="markers",
                name=column.title,
                marker={
                    "color": COLOURS[column.id],
                    "size": 11 if ours else 7,
                    "symbol": "diamond" if ours else "circle",
                },
                hovertemplate="%{x}: %{y:.2f}<extra>" + column.title + "</extra>",
            )
        )
    drawing.add_hline(y=many / few, line_color="#495057", line_dash="dash")
    drawing.update_xaxes(tickangle=-60, gridcolor="#f1f3f5", automargin=True, dtick=1, tickfont_size=11)
    drawing.update_yaxes(title=f"time on {few} / time on {many}", rangemode="tozero", gridcolor="#e9ecef")
    drawing.update_layout(height=560, font=FONT, margin=MARGIN, plot_bgcolor="white")
    text = f"How many times faster a call is on {many} threads than on {few}; {many / few:g} would be perfect."
    return Figure("scaling", "Scaling with threads", text, drawing)


def speedup(a, b, name):
    one, two = results.time_of(a, name), results.time_of(b, name)
    return one / two if one and two else None
