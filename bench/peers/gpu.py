"""scripts/bench --gpu: layers on this machine's CUDA device, beside PyTorch on it where that is installed."""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .shapes import ShapeError, read_shapes

ROOT = Path(__file__).resolve().parents[2]
NO_DEVICE = "this machine cannot run cuda"


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/bench --gpu", description=__doc__.partition(": ")[2])
    parser.add_argument("--shapes", type=Path, default=ROOT / "bench" / "shapes", metavar="FILE", help="default: bench/shapes")
    parser.add_argument("--seconds", type=float, default=1, help="for each shape and library; default: 1")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--attnc", type=Path, default=ROOT / "build/release/tree/bin/attnc", help=argparse.SUPPRESS)
    return parser.parse_args()


def is_for_device(shape):
    """A device has no caches, and the bench command no words."""
    return not shape.words and "cache" not in shape.flags


def attnc_milliseconds(shape, options):
    """Best and median of a layer's calls; None where there is no device."""
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures.json"
        command = [options.attnc, "bench", shape.problem, "--target", "cuda", "--seconds", str(options.seconds), "--json", figures]
        run = subprocess.run(command, capture_output=True, text=True)
        if NO_DEVICE in run.stdout + run.stderr:
            return None
        if run.returncode != 0:
            lines = (run.stdout + run.stderr).strip().splitlines()
            sys.exit(f"bench: {shape.problem}: {lines[-1] if lines else 'attnc failed'}")
        layer = next(r for r in json.loads(figures.read_text())["results"] if r["part"] == "layer")
        return layer["ms_best"], layer["ms_median"]


def torch_on_device():
    """PyTorch with float32 arithmetic as attnc's, or the reason why not."""
    try:
        import torch
    except ImportError:
        return None, "PyTorch is not installed"
    if not torch.cuda.is_available():
        return None, "PyTorch has no CUDA device"
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch, ""


def torch_milliseconds(torch, shape, seconds):
    """The same layer by four linear layers and scaled_dot_product_attention."""
    device, functional = "cuda", torch.nn.functional
    heads, kv_heads, width = shape.num_heads, shape.num_kv_heads, shape.head_dim
    features = [heads * width, kv_heads * width, kv_heads * width]
    project = [torch.nn.Linear(shape.d_model, n, device=device) for n in features]
    out = torch.nn.Linear(heads * width, shape.d_model, device=device)
    query = torch.rand(shape.batch, shape.seq_q, shape.d_model, device=device)
    key = query if shape.seq_q == shape.seq_kv else torch.rand(shape.batch, shape.seq_kv, shape.d_model, device=device)

    def call():
        q, k, v = (p(x).unflatten(-1, (-1, width)).transpose(1, 2) for p, x in zip(project, (query, key, key)))
        if heads != kv_heads:
            k, v = (x.repeat_interleave(heads // kv_heads, dim=1) for x in (k, v))
        context = functional.scaled_dot_product_attention(q, k, v, is_causal=shape.causal)
        return out(context.transpose(1, 2).flatten(2))

    times = []
    with torch.inference_mode():
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        end = time.monotonic() + seconds
        while not times or time.monotonic() < end:
            start = time.perf_counter()
            call()
            torch.cuda.synchronize()
            times.append(1e3 * (time.perf_counter() - start))
    return min(times), statistics.median(times)


def main():
    options = arguments()
    rows = []
    torch, absent = torch_on_device()
    for shape in filter(is_for_device, read_shapes(options.shapes)):
        own = attnc_milliseconds(shape, options)
        if own is None:
            print("bench: skipped: this machine has no CUDA driver or no device")
            return 0
        if not rows:
            print(f"{'median ms':<48}{'attnc':>10}{'PyTorch':>10}{'ratio':>8}" + (f"   {absent}" if absent else ""))
        row = {"problem": shape.problem, "attnc": own}
        line = f"{shape.problem:<48}{own[1]:>10.4f}"
        if torch:
            row["torch"] = torch_milliseconds(torch, shape, options.seconds)
            line += f"{row['torch'][1]:>10.4f}{own[1] / row['torch'][1]:>8.2f}"
        print(line, flush=True)
        rows.append(row)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ShapeError as error:
        sys.exit(f"bench: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
