"""What conda says it installed: the records in `conda-meta`, and the channels they came from.

Written from conda's documented format of a record (`NAME-VERSION-BUILD.json`, which holds the
channel and the list of files) and tested with records made by hand: conda itself has not been run.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from stabsweep.environment.distributions import canonical, computes, without_secrets
from stabsweep.environment.finding import Finding
from stabsweep.environment.lookup import Snapshot, look_list

HEAD_BYTES = 65536
"""How much of a record is read at first: the channel stands before the files, of which torch has
tens of thousands (a record of 6 MB)."""

PYTHON_NAMES = {"pytorch": "torch", "matplotlib-base": "matplotlib", "python-tzdata": "tzdata"}
"""Conda's name of a package -> its name as a distribution, where they differ."""

DEFAULTS = ("defaults", "main", "r", "msys2", "free", "anaconda")
"""Channels of the company behind conda; the others are the community's or a vendor's."""

RUNTIMES = frozenset(
    "blas cudatoolkit cuda-version cudnn intel-openmp libblas liblapack libopenblas libtorch "
    "llvm-openmp mkl openblas pytorch pytorch-cuda".split()
)
"""Conda packages that are no distributions and compute."""


def read(prefix: Path | None = None) -> list[dict[str, Any]] | None:
    """The records of an environment, by name; None where conda made none.

    Args:
        prefix: the environment's folder; that of this process when not given.

    Returns:
        `{name, version, build, channel}` each; for what computes also `owns`, the folder of Python
        metadata that the package brought, None if it brought none.
    """
    folder = (Path(sys.prefix) if prefix is None else prefix) / "conda-meta"
    if not folder.is_dir():
        return None
    return [_read_one(path) for path in sorted(folder.glob("*-*-*.json"))]


def distribution_of(record: dict[str, Any]) -> str:
    """The name of a record's package as a distribution.

    >>> distribution_of({"name": "pytorch"})
    'torch'
    """
    return PYTHON_NAMES.get(record["name"], canonical(record["name"]))


def find(snapshot: Snapshot) -> list[Finding]:
    """Channels that were mixed: conda's defaults and conda-forge build against other libraries.

    References:
        conda-forge's user documentation, "Channel and package compatibility".
    """
    counts: dict[str, int] = {}
    for record in look_list(snapshot, "conda"):
        if channel := record.get("channel"):
            counts[channel] = counts.get(channel, 0) + 1
    defaults = sum(number for name, number in counts.items() if name in DEFAULTS)
    forge = counts.get("conda-forge", 0)
    if not defaults or not forge:
        return []
    few = "defaults" if defaults < forge else "conda-forge"
    return [
        Finding(
            "warning",
            "channels",
            f"mixed: {forge} of conda-forge, {defaults} of defaults: they are built against "
            "other libraries",
            f"take all of one channel: make a fresh environment without {few}, with "
            "`conda config --set channel_priority strict`",
        )
    ]


def _read_one(path: Path) -> dict[str, Any]:
    name, version, build = path.stem.rsplit("-", 2)
    record: dict[str, Any] = {"name": name, "version": version, "build": build, "channel": None}
    is_computing = computes(distribution_of(record))
    try:
        with open(path, "rb") as file:
            text = file.read(HEAD_BYTES)
            if is_computing or b'"channel"' not in text:
                text += file.read()
    except OSError:
        return record
    if told := re.search(rb'"channel"\s*:\s*"([^"]*)"', text):
        record["channel"] = _channel(told[1].decode("utf-8", errors="replace"))
    if is_computing:
        # Not one expression for the whole: on torch's 6 MB that takes a tenth of a second.
        head = text.partition(b'.dist-info/METADATA"')
        owned = head[0].rpartition(b"/")[2] if head[1] else None
        record["owns"] = f"{owned.decode('utf-8', errors='replace')}.dist-info" if owned else None
    return record


def _channel(told: str) -> str:
    """The name of a channel that may be told as an address, without any token in it.

    >>> _channel("https://conda.example.org/t/tk-1/conda-forge/linux-64")
    'conda-forge'
    """
    parts = [part for part in without_secrets(told).split("/") if part]
    if len(parts) > 1 and re.fullmatch(r"noarch|(linux|osx|win|emscripten|wasi)-\w+", parts[-1]):
        parts.pop()
    return parts[-1] if parts else told
