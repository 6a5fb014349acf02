"""The machine as its operating system tells it, without loading any library."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

VECTORS = {
    "flags": {"avx512f": "AVX512", "avx2": "AVX2", "avx": "AVX", "sse4_2": "SSE4.2"},
    "Features": {"sve2": "SVE2", "sve": "SVE", "asimd": "NEON", "neon": "NEON"},
}
"""Line of `/proc/cpuinfo` (x86, ARM) -> its flag, from the widest, -> name of the vector level."""


def read_cpu() -> dict[str, Any]:
    """Model, vector level, number of logical cores, and how many of them this process may use.

    The level is the machine's; which one torch uses is its `cpu_capability`.
    """
    num_logical = os.cpu_count()
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return {
        "model": _first_value(Path("/proc/cpuinfo"), "model name") or platform.processor() or None,
        "vector": _vector_level(Path("/proc/cpuinfo")),
        "num_logical": num_logical,
        "num_usable": len(affinity(0)) if affinity else num_logical,
    }


def read_gpu_driver() -> dict[str, Any]:
    """Names of the cards in the machine, and the driver, as its files on Linux tell them.

    Torch knows the names too, but asking it initialises CUDA, which costs seconds and breaks
    processes that are forked later. It misleads about which cards torch may use: all are listed.
    """
    driver = Path("/proc/driver/nvidia")
    cards = sorted((driver / "gpus").glob("*/information"))
    return {
        "names": [_first_value(card, "Model") or "unknown" for card in cards],
        "driver": _first_value(driver / "version", "NVRM version"),
    }


def _vector_level(path: Path) -> str | None:
    for key, levels in VECTORS.items():
        flags = (_first_value(path, key) or "").split()
        if found := [level for flag, level in levels.items() if flag in flags]:
            return found[0]
    return None


def _first_value(path: Path, key: str) -> str | None:
    """The value of the first `key: value` line of a file, None without one."""
    try:
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            name, found, value = line.partition(":")
            if found and name.strip() == key:
                return value.strip()
    except OSError:
        pass
    return None
