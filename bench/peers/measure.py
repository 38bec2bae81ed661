"""One shape on so many threads: everything made, verified, then timed in turns in this one process."""

import gc
import math
import statistics
import time
from dataclasses import dataclass, field

import numpy as np

from . import catalog
from .autoscheduled import Autoscheduled
from .data import exact_rows, largest_difference, make_data, sampled_rows, tolerances
from .native import Attnc, Naive, Native, Onednn
from .peer import Absent, one_line

# A turn: calls that aren't counted, until the caches hold again what the others drove out, then calls that are. A long
# call drives out its own data by itself, and many short turns see more of the machine's moods than few long ones.
WARM_CALLS, WARM_SECONDS = 2, 4e-3
TIMED_CALLS, TIMED_SECONDS = 4, 6e-3
LONG_CALL, LONGEST_CALL = 0.01, 0.1  # seconds: one call to warm up and two that count; one that counts
FEWEST_ROUNDS, MOST_ROUNDS = 3, 40
CALM = 5e-3  # after a call on several threads: those that wait actively for the next one stop


@dataclass
class Entry:
    id: str
    call: object
    memory_bytes: int
    error: float  # largest difference from attnc's result
    calls: int = 0
    best: float = math.inf  # seconds of a call
    means: list = field(default_factory=list)  # seconds of a call, a number a turn
    fractions: list = field(default_factory=list)  # of the probes on both sides of the turn


class PeakMemory:
    """How far this process grew since, at most, in bytes."""

    def __init__(self):
        gc.collect()
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # the high-water mark starts here
        self.before = self.status("VmRSS")

    @staticmethod
    def status(name):
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith(name))

    def growth(self):
        return max(0, self.status("VmHWM") - self.before)


def measure(shape, threads, seconds, tree):
    """The row of a results file. `tree` has the paths root, objects, folder, attnc and archive."""
    native = Native(tree["objects"] / catalog.HELPER, threads)
    data = make_data(shape)
    memory = PeakMemory()
    ours = Attnc(native, shape, data, shape.probs, tree["attnc"], tree["archive"])
    ours(0)
    entries = [Entry(catalog.OURS, ours, memory.growth(), 0.0)]
    result = tuple(None if array is None else array.copy() for array in ours.result(0))
    bounds = verify_ours(shape, data, result)
    entries[0].error = bounds.pop("error")
    if shape.probs:
        without = Attnc(native, shape, data, False, tree["attnc"], tree["archive"])
        without(0)
        error = largest_difference(shape, data, result[0], without.result(0)[0])
        entries.append(Entry(catalog.OURS_WITHOUT_PROBS, without, 0, error))

    others = {}
    for column in catalog.PEERS:
        try:
            entries.append(make_peer(column, native, shape, data, tree, result, bounds))
        except Absent as reason:
            others[column.id] = {"absent": one_line(reason)}
        except ImportError as error:
            others[column.id] = {"absent": one_line(error)}
        except Exception as error:  # whatever a peer throws is a fact about it
            others[column.id] = {"error": f"{type(error).__name__}: {one_line(error)}"}
    probe_best = time_in_turns(entries, native, shape, threads, data.sets, seconds)
    return {
        "shape": shape.name,
        "model": shape.model,
        "threads": threads,
        "operations": shape.operations,
        "probe_gflops": probe_best / 1e9,
        "probe": native.probe_name(),
        "target": ours.target(),
        "tolerance": bounds["out"],
        "workspace_bytes": ours.workspace_bytes(),
        "entries": {entry.id: summary(entry, shape, probe_best) for entry in entries} | others,
    }


def verify_ours(shape, data, result):
    """Against float64 in some rows; the largest tolerance of these rows is that of all."""
    bounds = {"out": 0.0, "probs": 0.0, "error": 0.0}
    for item, rows in sampled_rows(shape, data):
        out, probs, rms = exact_rows(shape, data, item, rows)
        tolerance, probs_tolerance = tolerances(shape, data, rms)
        bounds["out"] = max(bounds["out"], tolerance)
        bounds["probs"] = max(bounds["probs"], probs_tolerance)
        error = float(np.abs(result[0][item, rows] - out).max())
        bounds["error"] = max(bounds["error"], error)
        check_error(error, tolerance, "out", "float64")
        if result[1] is not None:
            check_error(float(np.abs(result[1][item][:, rows] - probs).max()), probs_tolerance, "probs", "float64")
    return bounds


def check_error(error, tolerance, what, reference):
    if not error <= tolerance:  # NaN fails too
        raise RuntimeError(f"{what} differs from {reference} by {error:.2g}, allowed {tolerance:.2g}")


def make_peer(column, native, shape, data, tree, result, bounds):
    memory = PeakMemory()
    if column.id == "naive":
        peer = Naive(native, shape, data)
    elif column.id.startswith("halide_"):
        peer = Autoscheduled(column.title.split()[1], tree, shape, data, native.threads)
    elif column.id == "onednn":
        peer = Onednn(tree["objects"] / catalog.ONEDNN, shape, data, native.threads)
    else:
        peer = catalog.maker(column)(shape, data, native.threads)
    out, probs = peer.result(peer(0))
    growth = memory.growth()
    error = largest_difference(shape, data, result[0], out)
    check_error(error, bounds["out"], "out", "attnc's")
    if shape.probs:
        check_error(largest_difference(shape, data, result[1], probs), bounds["probs"], "probs", "attnc's")
    return Entry(column.id, peer, growth, error)


def time_in_turns(entries, native, shape, threads, sets, seconds):
    """Fills the entries' seconds. Returns the best rate of the probe, which runs before and after each of them."""
    turns = {entry.id: Turn(entry, sets) for entry in entries}
    gc.disable()
    probe_best = native.probe()
    begin = time.perf_counter()
    for done in range(MOST_ROUNDS):
        if done >= FEWEST_ROUNDS and time.perf_counter() - begin > seconds:
            break
        before = native.probe()
        first = done % len(entries)  # nobody always comes after the same one
        for entry in entries[first:] + entries[:first]:
            if done > 0 and not competes(entry.id):
                continue  # several times slower: once is enough
            mean = turns[entry.id].take()
            if threads > 1:
                time.sleep(CALM)
            after = native.probe()
            entry.fractions.append(shape.operations / mean / ((before + after) / 2))
            probe_best = max(probe_best, before, after)
            before = after
    gc.enable()
    return probe_best


def competes(name):
    column = catalog.BY_ID[name]
    return column.rival or not column.peer


class Turn:
    """Calls of one entry, with another set of tokens each."""

    def __init__(self, entry, sets):
        self.entry, self.sets, self.index = entry, sets, 0
        self.about = min(self.calls(2))

    def calls(self, count):
        """Seconds of each call."""
        call, clock, times = self.entry.call, time.perf_counter, []
        for _ in range(count):
            self.index = (self.index + 1) % self.sets
            begin = clock()
            call(self.index)
            times.append(clock() - begin)
        return times

    def counts(self):
        """Calls that aren't counted, and calls that are."""
        if self.about >= LONGEST_CALL:
            return 0, 1
        if self.about >= LONG_CALL:
            return 1, 2
        warm, timed = math.ceil(WARM_SECONDS / self.about), math.ceil(TIMED_SECONDS / self.about)
        return max(WARM_CALLS, warm), max(TIMED_CALLS, timed)

    def take(self):
        """Mean seconds of the turn's calls."""
        entry = self.entry
        warm, timed = self.counts()
        self.about = min([self.about, *self.calls(warm)])
        times = self.calls(timed)
        mean = sum(times) / timed
        entry.calls += timed
        entry.best = min([entry.best, *times])
        entry.means.append(mean)
        return mean


def summary(entry, shape, probe_best):
    return {
        "ms_best": entry.best * 1e3,
        "ms_median": statistics.median(entry.means) * 1e3,
        "peak_fraction": shape.operations / entry.best / probe_best,
        "peak_fraction_median": statistics.median(entry.fractions),
        "calls": entry.calls,
        "memory_bytes": entry.memory_bytes,
        "error": entry.error,
    }
