"""The executor that fits: one process a core, where that can be had and there are cores."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

GROUP, OWN_GROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
"""Where Linux tells what a container is allowed, and in which of its groups this process is."""


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
    """Cores whose time this process may use; None where there is no limit."""
    own = GROUP
    try:
        # A line `0::/a/b`: any group on the way may have a limit.
        lines = OWN_GROUP.read_text(encoding="utf-8").splitlines()
        own = GROUP / next(line[4:] for line in lines if line.startswith("0::/"))
    except (OSError, StopIteration):
        pass
    groups = [group for group in (own, *own.parents) if group.is_relative_to(GROUP)]
    found = [_limit(group / "cpu.max") for group in groups]
    found.append(_limit(GROUP / "cpu/cpu.cfs_quota_us", GROUP / "cpu/cpu.cfs_period_us"))
    return min((cores for cores in found if cores), default=None)


def _limit(*files: Path) -> float | None:
    """Cores by the two numbers in some files: time, and of which period it is."""
    try:
        time, period = " ".join(file.read_text(encoding="ascii") for file in files).split()
        # No limit is "max" in the newer files, and -1 in the older ones.
        return max(float(time) / float(period), 0.0)
    except (OSError, ValueError, ZeroDivisionError):
        return None
