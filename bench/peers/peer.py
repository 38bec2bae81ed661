"""What every peer is: made from a shape and its data, called with the index of a set of tokens."""


class Absent(Exception):
    """A peer that has no counterpart of the shape or isn't on this machine; the text is the reason, in a line."""


def one_line(error):
    """The first line of an error that says something, for a table."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:200]


# Scores of all heads that a peer holds at once, in copies: scores, masked or scaled ones, probabilities.
SCORE_COPIES = 3


def refuse_scores_beyond_memory(shape):
    """For peers that keep seq_q x seq_kv scores of all heads."""
    with open("/proc/meminfo") as file:
        available = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))
    needed = SCORE_COPIES * shape.score_bytes
    if needed > available // 2:
        raise Absent(f"its scores take {needed / 2**30:.0f} GiB, of {available / 2**30:.0f} available")
