"""The snapshot: all that lies outside the config and can change what a run computes."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from stabsweep.environment import libraries, machine, project

FORMAT = 1
"""Version of the snapshot's layout; raised when a key changes its meaning."""

VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES",
    "KMP_AFFINITY",
    "MKL_CBWR",
    "MKL_DYNAMIC",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_DYNAMIC",
    "OMP_NUM_THREADS",
    "OMP_PROC_BIND",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_CORETYPE",
    "OPENBLAS_NUM_THREADS",
    "PYTHONHASHSEED",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "VECLIB_MAXIMUM_THREADS",
)
"""Environment variables that change numbers or their order of summation.

A fixed list, chosen by us: the whole environment would hold secrets.
"""


def take() -> dict[str, Any]:
    """The environment of this process, now, as plain JSON values.

    It never fails: a part that cannot be read says why, as `{"error": ...}` or None. It is cheap
    (tens of milliseconds once torch is loaded) and changes nothing: CUDA is not initialised, no
    switch is set, no file is written.

    It misleads when a switch is set after it was taken, and about a work tree with files that git
    does not track: those are not counted as changes.

    Returns:
        The parts `python`, `platform`, `cpu`, `gpu`, `threads`, `torch`, `numpy`, `switches`,
        `versions`, `variables` and `git`, with `format` and `time` (ISO 8601, UTC).

    >>> take()["python"]["implementation"] == platform.python_implementation()
    True
    """
    return {
        "format": FORMAT,
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "executable": sys.executable,
        },
        "platform": {
            "system": platform.system(),
            "release": platform.release(),
            "machine": platform.machine(),
            "libc": " ".join(platform.libc_ver()).strip() or None,
        },
        "cpu": machine.read_cpu(),
        "gpu": {**libraries.read_devices(), **machine.read_gpu_driver()},
        "threads": libraries.read_threads(),
        "torch": libraries.read_torch_build(),
        "numpy": libraries.read_numpy_build(),
        "switches": libraries.read_switches(),
        "versions": libraries.read_versions(),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "git": project.read(),
    }


def save(path: Path, snapshot: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Write a snapshot as JSON, whole or not at all, and return it.

    Args:
        path: the file; its folder must exist.
        snapshot: what `take` returned; taken now when not given.

    Raises:
        OSError: the file cannot be written.
    """
    plain = dict(take() if snapshot is None else snapshot)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(plain, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    part.replace(path)
    return plain
