"""Which machine this is, in words for a results file and in a name for its file."""

import os
import platform
import re
from pathlib import Path

CPU_FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")


def cpu_fields():
    fields = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    return fields


def runnable_targets(listing):
    """Those of what `attnc list --targets` prints whose features this CPU has, best first."""
    flags = set(cpu_fields().get("flags", "").split())
    names = {"sse41": "sse4_1", "avx512_skylake": "avx512dq"}  # of the kernel; the rest are equal
    targets = []
    for line in listing.splitlines():
        target, *features = line.split()
        if not target.startswith("x86-64"):
            continue
        if features[0] == "any" or all(names.get(feature, feature) in flags for feature in features):
            targets.append(target)
    return targets


def caches():
    """{"L1d": "48K", "L2": "2048K", …} of the first core."""
    found = {}
    for index in sorted(CPU_FOLDER.glob("index*")):
        level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        suffix = {"Data": "d", "Instruction": "i"}.get(kind, "")
        found[f"L{level}{suffix}"] = size
    return found


def memory_gib():
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)


def describe():
    cpu = cpu_fields()
    return {
        "cpu": cpu.get("model name", platform.machine()),
        "family": cpu.get("cpu family", ""),
        "model": cpu.get("model", ""),
        "cores": len(os.sched_getaffinity(0)),
        "caches": caches(),
        "memory_gib": memory_gib(),
        "system": f"{platform.system()} {platform.release()}",
    }


def file_name(machine):
    """intel-xeon-processor-6-207-2-cores"""
    text = f"{machine['cpu']} {machine['family']} {machine['model']} {machine['cores']} cores"
    text = re.sub(r"\((r|tm)\)", " ", text.lower())
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")
