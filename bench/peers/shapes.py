"""Shape files: a problem string a line, then words that say more about the call, then a comment.

d384_h12_f32:b32_q128_kv128 padded    # MiniLM
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path

WORDS = ("padded", "decode", "memory", "probs")
CONFIG = re.compile(r"d(?P<d>\d+)_h(?P<h>\d+)(_kv(?P<kv>\d+))?(_hd(?P<hd>\d+))?_f32(?P<flags>(_[a-z]+)*)$")
SIZES = re.compile(r"b(?P<b>\d+)_q(?P<q>\d+)(_kv(?P<kv>\d+))?$")
FLAGS = ("causal", "cache", "nomask", "noprobs")  # what the peers have a counterpart for


class ShapeError(ValueError):
    pass


@dataclass(frozen=True)
class Shape:
    """One row of the benchmark: a configuration, the sizes of a call, and what else the call has.

    padded: items have lengths, from 1/batch of seq to all of it. decode: the keys are in a cache, and the call appends its
    own. memory: they are in a cache that the call only reads. probs: the weights of each head are returned too.
    """

    problem: str
    d_model: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    flags: frozenset
    batch: int
    seq_q: int
    seq_kv: int
    words: tuple = ()
    model: str = ""

    @property
    def config(self):
        return self.problem.split(":")[0]

    @property
    def name(self):
        return " ".join((self.problem, *self.words))

    @property
    def causal(self):
        return "causal" in self.flags

    @property
    def padded(self):
        return "padded" in self.words

    @property
    def decode(self):
        return "decode" in self.words

    @property
    def memory(self):
        return "memory" in self.words

    @property
    def probs(self):
        return "probs" in self.words

    @property
    def cross(self):
        """Keys are projected from other tokens than queries."""
        return not self.decode and not self.memory and self.seq_q != self.seq_kv

    @property
    def cached(self):
        """Keys that are in a cache before the call."""
        if self.memory:
            return self.seq_kv
        return self.seq_kv - self.seq_q if self.decode else 0

    @property
    def lengths(self):
        """Valid tokens of each item, or None where all are."""
        if not self.padded:
            return None
        return [math.ceil(self.seq_q * (item + 1) / self.batch) for item in range(self.batch)]

    @property
    def operations(self):
        """Floating-point operations of the call: products and sums of valid tokens and visible pairs."""
        items = self.lengths or [self.seq_kv] * self.batch
        q_width = self.num_heads * self.head_dim
        kv_width = self.num_kv_heads * self.head_dim
        total = 0
        for seq_kv in items:
            seq_q = seq_kv if self.padded else self.seq_q
            pairs = seq_q * seq_kv
            if self.causal:
                pairs -= seq_q * (seq_q - 1) // 2
            total += seq_q * self.d_model * 2 * q_width
            total += (seq_kv - self.cached) * self.d_model * 2 * kv_width
            total += self.num_heads * pairs * 2 * self.head_dim
        return 2 * total

    @property
    def score_bytes(self):
        """Of one tensor of all scores, which some peers make several of."""
        return 4 * self.batch * self.num_heads * self.seq_q * self.seq_kv


def parse_shape(text):
    """The shape of a line without its comment."""
    problem, *words = text.split()
    config_text, _, sizes_text = problem.partition(":")
    config, sizes = CONFIG.match(config_text), SIZES.match(sizes_text)
    if config is None or sizes is None:
        raise ShapeError(f"'{problem}' is not a problem string as d512_h8_f32:b32_q50_kv50")
    flags = config["flags"].split("_")[1:]
    for flag in flags:
        if flag not in FLAGS:
            raise ShapeError(f"'{problem}': the peers have nothing like '{flag}'; known are {', '.join(FLAGS)}")
    for word in words:
        if word not in WORDS:
            raise ShapeError(f"'{word}' after '{problem}' is none of {', '.join(WORDS)}")
    d_model, num_heads = int(config["d"]), int(config["h"])
    if config["hd"] is None and (num_heads == 0 or d_model % num_heads):
        raise ShapeError(f"'{problem}': d_model {d_model} is not divisible by num_heads {num_heads}")
    seq_q = int(sizes["q"])
    shape = Shape(
        problem=problem,
        d_model=d_model,
        num_heads=num_heads,
        num_kv_heads=int(config["kv"] or num_heads),
        head_dim=int(config["hd"] or d_model // num_heads),
        flags=frozenset(flags),
        batch=int(sizes["b"]),
        seq_q=seq_q,
        seq_kv=int(sizes["kv"] or seq_q),
        words=tuple(words),
    )
    check_words(shape)
    return shape


def check_words(shape):
    problem = shape.problem
    if min(shape.batch, shape.seq_q, shape.seq_kv) == 0:
        raise ShapeError(f"'{problem}': nothing to time in a call of size 0")
    if shape.decode and shape.memory:
        raise ShapeError(f"'{problem}': decode appends to a cache, memory only reads it; one of them")
    if (shape.decode or shape.memory) != ("cache" in shape.flags):
        raise ShapeError(f"'{problem}': decode and memory go with a configuration with _cache, and it with one of them")
    if shape.decode and shape.seq_q >= shape.seq_kv:
        raise ShapeError(f"'{problem}': decode counts its own keys too, so seq_kv must be above seq_q {shape.seq_q}")
    if shape.padded and (shape.seq_q != shape.seq_kv or shape.cached):
        raise ShapeError(f"'{problem}': padded is for self-attention without a cache")
    if shape.cross and shape.causal:
        raise ShapeError(f"'{problem}': causal is for self-attention")


def read_shapes(path):
    """The shapes of a file, or of every file of a folder but quick.txt."""
    path = Path(path)
    files = sorted(f for f in path.glob("*.txt") if f.name != "quick.txt") if path.is_dir() else [path]
    shapes = []
    for file in files:
        try:
            lines = file.read_text().splitlines()
        except OSError as error:
            raise ShapeError(f"cannot read {file}: {error.strerror}") from None
        for number, line in enumerate(lines, 1):
            text, _, comment = line.partition("#")
            if not text.strip():
                continue
            try:
                shape = parse_shape(text)
            except ShapeError as error:
                raise ShapeError(f"{file}:{number}: {error}") from None
            shapes.append(Shape(**{**shape.__dict__, "model": comment.strip()}))
    if not shapes:
        raise ShapeError(f"{path} has no shapes")
    return shapes
