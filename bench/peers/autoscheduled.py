"""A layer as a Halide pipeline that one of Halide's autoschedulers scheduled: for one size of call, compiled once and kept."""

import ctypes
import re
import subprocess

from .native import Library, NativeLayer
from .peer import Absent, one_line

COMPILER = "attnc_bench_autoschedule"
SYMBOL = "autoscheduled"
TIME_LIMIT = 90  # seconds; Adams2019 takes tens of them
# It compiles for each size and number of threads, so only these have a column: those of bench/shapes/quick.txt.
SHAPES = ("d512_h8_f32:b32_q50_kv50", "d512_h8_f32:b1_q128_kv128")


class Autoscheduled(NativeLayer):
    def __init__(self, scheduler, tree, shape, data, threads):
        if shape.name not in SHAPES:
            raise Absent(f"compiled for {' and '.join(SHAPES)} only")
        library = Library(compiled(scheduler, tree, shape, threads), {f"{SYMBOL}_create": ctypes.c_void_p})

        def create(problem, weights):
            return library.function(f"{SYMBOL}_create")(problem, weights, ctypes.c_int64(threads), library.error)

        super().__init__(library, SYMBOL, shape, data, False, create)


def compiled(scheduler, tree, shape, threads):
    """The shared object, made where it isn't there or older than what makes it."""
    maker = tree["objects"] / COMPILER
    folder = tree["folder"] / "autoscheduled" / re.sub(r"\W", "_", f"{shape.problem} {threads} {scheduler}")
    result = folder / "layer.so"
    if result.exists() and result.stat().st_mtime > maker.stat().st_mtime:
        return result
    folder.mkdir(parents=True, exist_ok=True)
    halide = next(tree["root"].glob(".venv/lib/python3*/site-packages/halide"), None)
    if halide is None:
        raise Absent("no Halide in .venv")
    plugin = halide / "lib64" / f"libautoschedule_{scheduler.lower()}.so"
    run([maker, shape.problem, scheduler, plugin, threads, folder / SYMBOL])
    sizes = [f"-DBATCH={shape.batch}", f"-DSEQ={shape.seq_q}", f"-DD_MODEL={shape.d_model}"]
    places = [f"-I{halide / 'include'}", f"-I{folder}", tree["root"] / "bench" / "peers" / "autoscheduled_call.c"]
    # Several of them in one process: each keeps to its own copy of Halide's runtime.
    options = ["-shared", "-fPIC", "-O2", "-Wl,-Bsymbolic", "-o", result]
    run(["cc", *options, *sizes, *places, folder / f"{SYMBOL}.a", "-lpthread", "-ldl", "-lm"])
    return result


def run(command):
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=TIME_LIMIT, check=False)
    except subprocess.TimeoutExpired:
        raise Absent(f"took longer than {TIME_LIMIT} s to compile") from None
    if done.returncode:
        raise Absent(f"does not compile: {one_line(done.stderr)}")
