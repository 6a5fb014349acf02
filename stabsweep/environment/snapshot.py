"""The snapshot: all that lies outside the config and can change what a run computes."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from stabsweep.environment import (
    conda,
    distributions,
    libraries,
    lock,
    machine,
    project,
    runtimes,
    variables,
)
from stabsweep.errors import BadInput

FORMAT = 2
"""Version of the snapshot's layout; raised when a key changes its meaning, or when a reader of the
older layout would take what is missing for what is not there.

2 added `runtimes`, `distributions`, `conda` and `lock`, the vector level of the CPU, and which file
torch and NumPy are loaded from.
"""

NAME = "environment.json"
"""The snapshot's file in a folder of results."""

LONG = ("distributions", "conda")
"""The parts that list hundreds of entries."""


def take() -> dict[str, Any]:
    """The environment of this process, now, as plain JSON values.

    It never fails: a part that cannot be read says why, as `{"error": ...}` or None. It is cheap
    (tens of milliseconds once torch is loaded) and changes nothing: CUDA is not initialised, no
    switch is set, no file is written.

    It misleads when a switch is set after it was taken, about a runtime that is loaded later (see
    `runtimes.load`), and about a work tree with files that git does not track: those are not
    counted as changes.

    Returns:
        The parts `python`, `platform`, `cpu`, `gpu`, `threads`, `torch`, `numpy`, `runtimes`,
        `switches`, `versions`, `distributions`, `conda`, `lock`, `variables` and `git`, with
        `format` and `time` (ISO 8601, UTC).

    >>> take()["python"]["implementation"] == platform.python_implementation()
    True
    """
    installed = distributions.read()
    taken = {
        "format": FORMAT,
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "executable": sys.executable,
            "prefix": sys.prefix,
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
        "runtimes": runtimes.read(),
        "switches": libraries.read_switches(),
        "versions": libraries.read_versions(installed),
        "distributions": installed,
        "conda": conda.read(),
    }
    return {
        **taken,
        "lock": lock.read(Path.cwd(), taken),
        "variables": variables.read(),
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


def load(path: Path) -> dict[str, Any]:
    """A snapshot that was saved, of this format or an older one.

    Args:
        path: its file, or a folder of results.

    Raises:
        BadInput: there is none, it is no snapshot, or one of a newer stabsweep.
    """
    file = path / NAME if path.is_dir() else path
    try:
        read = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        what = f"{path} holds no {NAME}" if path.is_dir() else f"there is no {path}"
        raise BadInput(
            f"{what}: give a folder of results, or what `stabsweep env snapshot out=FILE` wrote"
        ) from None
    except OSError as error:
        raise BadInput(f"cannot read {file}: {error.strerror}") from None
    except ValueError:
        read = None
    form = read.get("format") if isinstance(read, dict) else None
    if not isinstance(read, dict) or type(form) is not int:
        raise BadInput(
            f"{file} is no snapshot: give what `stabsweep env snapshot out=FILE` wrote, or a "
            "folder of results"
        )
    if form > FORMAT:
        raise BadInput(
            f"{file} is of format {form}, this stabsweep reads up to {FORMAT}: use a newer one"
        )
    return read


def brief(snapshot: Mapping[str, Any]) -> dict[str, Any]:
    """A snapshot with the number of entries in place of its long lists.

    >>> brief({"format": 2, "distributions": [{"name": "torch"}], "conda": None})
    {'format': 2, 'distributions': '1 entries', 'conda': None}
    """
    return {
        name: f"{len(part)} entries" if name in LONG and isinstance(part, list) else part
        for name, part in snapshot.items()
    }
