"""The whole run: libraries, then every shape on every thread count within the time that there is."""

import datetime
import subprocess
import time

from . import catalog, machine, results, worker

LONGEST_MEASUREMENT = 8  # seconds of rounds for one shape
SHORTEST_MEASUREMENT = 1
TIME_LIMIT = 240  # seconds for all of one shape, also of the last that begins before the time is over


class RunError(RuntimeError):
    pass


def output_of(command, **options):
    result = subprocess.run(command, capture_output=True, text=True, **options)
    if result.returncode:
        lines = (result.stderr.strip() or result.stdout.strip() or "no reason given").splitlines()
        raise RunError(f"{command[0]} {command[1]}: {lines[-1]}")
    return result.stdout.strip()


def best_target(attnc):
    """The first of attnc's usual targets whose features this CPU has."""
    targets = machine.runnable_targets(output_of([str(attnc), "list", "--targets"]))
    if not targets:
        raise RunError("this machine can run none of attnc's targets")
    return targets[0]


def build_library(attnc, config, target, folder):
    """The archive of a configuration."""
    output = folder / "libraries" / config
    name = f"attnc_{config}"
    cache = folder / "kernels"
    command = [str(attnc), "build", config, "--name", name, "--target", target, "-o", str(output)]
    output_of([*command, "--kernel-cache", str(cache)])
    return output / f"lib{name}.a"


def commit(root):
    """Of the tree that is measured; with a sign where it has other changes."""
    try:
        name = output_of(["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"])
        changed = output_of(["git", "-C", str(root), "status", "--porcelain", "--untracked-files=no"])
    except (RunError, FileNotFoundError):
        return "unknown"
    return f"{name}+changes" if changed else name


def run(shapes, thread_counts, minutes, tree):
    """A results file's contents. `tree` has the paths root, attnc, objects and folder."""
    deadline = time.monotonic() + 60 * minutes
    worker.prepare_environment(tree["folder"])
    target = best_target(tree["attnc"])
    archives = {}
    configs = list(dict.fromkeys(shape.config for shape in shapes))
    for number, config in enumerate(configs, 1):
        print(f"library {number} of {len(configs)}: {config}", flush=True)
        archives[config] = build_library(tree["attnc"], config, target, tree["folder"])
    context = worker.preload()
    rows = []
    todo = [(shape, threads) for threads in thread_counts for shape in shapes]
    overhead = 0.0  # seconds of a process beside its rounds
    for number, (shape, threads) in enumerate(todo):
        left = (deadline - time.monotonic()) / (len(todo) - number)
        seconds = min(max(left - overhead / max(number, 1), SHORTEST_MEASUREMENT), LONGEST_MEASUREMENT)
        parts = tree | {"archive": archives[shape.config]}
        begin = time.monotonic()
        try:
            if begin >= deadline:
                raise RuntimeError(f"not measured: the {minutes:g} minutes were over")
            row = worker.run_shape(context, shape, threads, seconds, parts, TIME_LIMIT)
        except RuntimeError as error:
            row = {"shape": shape.name, "model": shape.model, "threads": threads, "failed": str(error)}
        overhead += max(0.0, time.monotonic() - begin - seconds)
        rows.append(row)
        print(f"[{number + 1}/{len(todo)}] {progress(row)}", flush=True)
    here = machine.describe()
    return {
        "schema": results.SCHEMA,
        "machine": {"name": machine.file_name(here), **here},
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(tree["root"]),
        "versions": catalog.versions(tree["objects"]),
        "rows": rows,
    }


def progress(row):
    text = f"{row['shape']}, {row['threads']} threads: " if row["threads"] > 1 else f"{row['shape']}, 1 thread: "
    if "failed" in row:
        return f"{text}failed: {row['failed']}"
    ours = row["entries"][catalog.OURS]
    text += f"{ours['ms_best']:.3f} ms, {ours['peak_fraction']:.2f} of the probe"
    fastest = results.fastest_peer(row)
    if fastest is not None:
        text += f"; {catalog.BY_ID[fastest[0]].title} {fastest[1]:.3f} ms, {results.advantage(row):.2f} times"
    errors = [f"{name}: {e['error']}" for name, e in row["entries"].items() if isinstance(e.get("error"), str)]
    return "; ".join([text, *errors])
