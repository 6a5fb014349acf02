"""The executor that fits: one process a core, where that can be had and there are cores."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

GROUP = Path("/sys/fs/cgroup")
"""Where Linux tells what a container is allowed."""


def num_cores() -> int:
    """Cores that are ours, at least 1.

    As many as torch has threads, which respects `OMP_NUM_THREADS`, the affinity of this process and
    `torch.set_num_threads`; fewer where a container is allowed the time of fewer.
    """
    quota = _quota()
    cores = torch.get_num_threads()
    return cores if quota is None else max(min(cores, int(quota)), 1)


def obstacle(device: torch.device) -> str | None:
    """Why trials cannot train in forked processes; None when they can."""
    if device.type != "cpu":
        return f"trials train on {device}"
    if sys.platform != "linux" or not hasattr(os, "fork"):
        return "it forks, which is safe on Linux alone"
    if torch.cuda.is_available() or torch.xpu.is_available():
        # The threads that torch has for the gradients of a GPU do not survive a fork.
        return "no gradients can be had after a fork where a GPU is seen (CUDA_VISIBLE_DEVICES=)"
    return None


def _quota() -> float | None:
    """Cores whose time this container may use; None where there is no limit."""
    try:
        if (GROUP / "cpu.max").exists():
            time, period = (GROUP / "cpu.max").read_text(encoding="ascii").split()
        else:
            names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            time, period = ((GROUP / "cpu" / n).read_text(encoding="ascii") for n in names)
        # "max" in the newer files and -1 in the older ones: no limit.
        return float(time) / float(period) if float(time) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None
