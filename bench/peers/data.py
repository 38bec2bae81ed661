"""Numbers of a shape: weights, tokens, cached keys; the exact result of some rows; and how far float32 may be from it."""

from dataclasses import dataclass, field

import numpy as np

UNIT_ROUNDOFF = 2.0**-24
STANDARD_DEVIATIONS = 12  # the largest of 1e8 normal numbers is below 6; two results are compared
LEVEL2 = 1 << 21
MOST_SETS = 16


@dataclass
class Data:
    """weights: wq, wk, wv, wo [out, in], bq, bk, bv, bo. queries, keys: sets of tokens that are used in turn, so that a small
    call doesn't find its own in the cache. past_k, past_v: [batch, num_kv_heads, cached, head_dim]."""

    weights: dict
    queries: list
    keys: list  # the same arrays as queries for self-attention; None for a memory
    past_k: np.ndarray | None = None
    past_v: np.ndarray | None = None
    lengths: np.ndarray | None = None
    sets: int = field(init=False)

    def __post_init__(self):
        self.sets = len(self.queries)


def aligned(array):
    """A copy that begins at a multiple of 64 bytes, as allocators of tensors give."""
    raw = np.empty(array.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def make_data(shape, seed=1):
    """Projections of variance 1, so that scores have the spread of a trained layer's and no weight is all of a row."""
    random = np.random.default_rng(seed)

    def normal(*extent, scale=1.0):
        return aligned(random.standard_normal(extent, np.float32) * np.float32(scale))

    d, heads, kv_heads, hd = shape.d_model, shape.num_heads, shape.num_kv_heads, shape.head_dim
    weights = {
        "wq": normal(heads * hd, d, scale=d**-0.5),
        "wk": normal(kv_heads * hd, d, scale=d**-0.5),
        "wv": normal(kv_heads * hd, d, scale=d**-0.5),
        "wo": normal(d, heads * hd, scale=(heads * hd) ** -0.5),
        "bq": normal(heads * hd, scale=0.1),
        "bk": normal(kv_heads * hd, scale=0.1),
        "bv": normal(kv_heads * hd, scale=0.1),
        "bo": normal(d, scale=0.1),
    }
    bytes_of_call = 4 * shape.batch * d * (2 * shape.seq_q + (shape.seq_kv if shape.cross else 0))
    sets = int(np.clip(2 * LEVEL2 // bytes_of_call, 1, MOST_SETS))
    queries = [normal(shape.batch, shape.seq_q, d) for _ in range(sets)]
    keys = queries
    if shape.cross:
        keys = [normal(shape.batch, shape.seq_kv, d) for _ in range(sets)]
    data = Data(weights, queries, [None] * sets if shape.memory else keys)
    if shape.cached:
        data.past_k = normal(shape.batch, kv_heads, shape.cached, hd)
        data.past_v = normal(shape.batch, kv_heads, shape.cached, hd)
    if shape.padded:
        data.lengths = np.array(shape.lengths, np.int32)
    return data


def split_heads(x, heads):
    return x.reshape(x.shape[0], heads, -1).transpose(1, 0, 2)


def exact_rows(shape, data, item, rows):
    """out [rows, d_model] and probs [heads, rows, seq_kv] of an item's queries in float64, straight from the equations, and
    the root mean squares that the tolerance is made of."""
    w = {name: value.astype(np.float64) for name, value in data.weights.items()}
    length = shape.seq_kv if data.lengths is None else int(data.lengths[item])
    scale = shape.head_dim**-0.5
    q = split_heads(data.queries[0][item, rows].astype(np.float64) @ w["wq"].T + w["bq"], shape.num_heads)
    if shape.memory:
        k, v = data.past_k[item].astype(np.float64), data.past_v[item].astype(np.float64)
    else:
        tokens = data.keys[0][item][: length - shape.cached].astype(np.float64)
        k = split_heads(tokens @ w["wk"].T + w["bk"], shape.num_kv_heads)
        v = split_heads(tokens @ w["wv"].T + w["bv"], shape.num_kv_heads)
    if shape.decode:
        k = np.concatenate([data.past_k[item], k], axis=1)
        v = np.concatenate([data.past_v[item], v], axis=1)
    group = shape.num_heads // shape.num_kv_heads
    context = np.empty_like(q)
    probs = np.zeros((shape.num_heads, len(rows), shape.seq_kv))
    largest_score = 0.0
    for head in range(shape.num_heads):
        scores = q[head] @ k[head // group].T * scale
        largest_score = max(largest_score, float(np.abs(scores).max()))
        if shape.causal:
            scores[np.arange(length) > np.asarray(rows)[:, None] + shape.seq_kv - shape.seq_q] = -np.inf
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        probs[head, :, :length] = p
        context[head] = p @ v[head // group]
    merged = context.transpose(1, 0, 2).reshape(len(rows), -1)
    out = merged @ w["wo"].T + w["bo"]
    rms = {"q": root_mean_square(q), "k": root_mean_square(k), "v": root_mean_square(v)}
    rms |= {"context": root_mean_square(context), "out": root_mean_square(out), "score": largest_score}
    return out, probs, rms


def root_mean_square(x):
    return float(np.sqrt(np.mean(np.square(x, dtype=np.float64))))


def tolerances(shape, data, rms):
    """How far float32 results may be from exact ones: of `out`, and of a weight of a head, which is at most 1.

    A sum of n products has n roundings, each at most u of a partial sum; as independent ones their standard deviation is
    at most u sqrt(n) times the root mean square of the result (Higham and Mary 2019). The steps of the layer follow each
    other: projection, scores, weights, context, output projection.
    """
    u = UNIT_ROUNDOFF
    depth, hd, keys = np.sqrt(shape.d_model), np.sqrt(shape.head_dim), np.sqrt(shape.seq_kv)
    q, k, v = (u * depth * rms[name] for name in ("q", "k", "v"))
    score = np.hypot(rms["q"] * k, rms["k"] * q) + u * hd * rms["q"] * rms["k"]  # scaled by 1/sqrt(head_dim), times as many
    weight = score + u * (2 * rms["score"] + 8)  # relative: of exp of a difference, and exp itself
    context = weight * rms["v"] + v + u * keys * rms["context"]
    wo = root_mean_square(data.weights["wo"])
    out = np.sqrt(shape.num_heads * shape.head_dim) * wo * context + u * depth * rms["out"]
    return float(STANDARD_DEVIATIONS * out), float(STANDARD_DEVIATIONS * (weight + u * keys))


def sampled_rows(shape, data):
    """Items and rows whose exact results are worth their time: first, last and some between, of up to three items."""
    items = sorted({0, shape.batch // 2, shape.batch - 1})
    for item in items:
        length = shape.seq_q if data.lengths is None else int(data.lengths[item])
        yield item, sorted({int(r) for r in np.linspace(0, length - 1, 16)})


def largest_difference(shape, data, a, b):
    """Of valid rows: what is past an item's length is left out."""
    if data.lengths is None:
        return float(np.abs(a - b).max())
    axis = a.ndim - 2  # rows of queries in out [batch, seq, d] and probs [batch, heads, seq, seq]
    worst = 0.0
    for item, length in enumerate(data.lengths):
        rows = [slice(None)] * (axis - 1) + [slice(length)]
        worst = max(worst, float(np.abs(a[item][tuple(rows)] - b[item][tuple(rows)]).max()))
    return worst
