"""What runs now, written down so that it can be installed again: for conda, and for pip."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from stabsweep.environment import conda
from stabsweep.environment.lock import MARK
from stabsweep.environment.lookup import Snapshot, look_list, look_text
from stabsweep.errors import BadInput

FILES = ("environment.yml", "requirements.txt")
"""What is written: for conda, and for pip."""


def export(folder: Path, snapshot: Snapshot, force: bool = False) -> list[Path]:
    """Writes `environment.yml` and `requirements.txt`; the paths.

    The versions are exact, the hashes are not there: another build of the same version may come.
    It misleads about what no index has: an editable install stands there as a comment only, of a
    local build (`2.4.1+cpu`) the public version, with the local one beside it, which `env check`
    compares. Without conda the `environment.yml` lets conda make Python and pip install the rest.
    Neither file has been tried with conda itself.

    Args:
        folder: where they go; made when it is missing.
        snapshot: what runs, as `snapshot.take` returned it.
        force: write over files that are there.

    Raises:
        BadInput: a file is there already, or cannot be written.
    """
    texts = dict(zip(FILES, (_conda_text(snapshot), _pip_text(snapshot)), strict=True))
    there = [name for name in texts if (folder / name).exists()]
    if there and not force:
        names = " and ".join(there)
        raise BadInput(
            f"{names} exists in {folder}: give another DIR, or force=true to write over it"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write to {folder}: {error.strerror}") from None
    return [folder / name for name in texts]


def _head(snapshot: Snapshot, how: str) -> list[str]:
    day = look_text(snapshot, "time")[:10]
    system = f"{look_text(snapshot, 'platform.system')} {look_text(snapshot, 'platform.machine')}"
    return [
        f"# {MARK} on {day}: exact versions of what ran there",
        f"# ({system}, Python {look_text(snapshot, 'python.version')}). {how}",
    ]


def _pip_text(snapshot: Snapshot) -> str:
    head = _head(snapshot, "pip install -r requirements.txt")
    return "\n".join([*head, *_pins(snapshot, set())]) + "\n"


def _conda_text(snapshot: Snapshot) -> str:
    records = look_list(snapshot, "conda")
    lines = _head(snapshot, "conda env create -f environment.yml")
    counts = Counter(record.get("channel") or "defaults" for record in records)
    channels = [name for name, _ in counts.most_common()] or ["conda-forge"]
    lines += ["name: stabsweep-lock", "channels:", *(f"  - {name}" for name in channels)]
    lines += ["dependencies:"]
    if records:
        lines += [f"  - {r['name']}={r['version']}={r['build']}" for r in records]
    else:
        lines += [f"  - python={look_text(snapshot, 'python.version')}", "  - pip"]
    names = {conda.distribution_of(record) for record in records}
    pins = _pins(
        snapshot,
        {
            str(entry["name"])
            for entry in look_list(snapshot, "distributions")
            # Some conda packages have no installer's name; of pip's own, pip is told again.
            if records and entry.get("installer") != "pip"
            if entry.get("installer") == "conda" or entry["name"] in names
        },
    )
    if any(not line.startswith("#") for line in pins):
        lines.append("  - pip:")
    lines += [f"      {line}" if line.startswith("#") else f"      - {line}" for line in pins]
    return "\n".join(lines) + "\n"


def _pins(snapshot: Snapshot, leave_out: set[str]) -> list[str]:
    """One line a distribution, by name; of two copies the one that is found first."""
    firsts: dict[str, dict[str, Any]] = {}
    for entry in look_list(snapshot, "distributions"):
        firsts.setdefault(str(entry["name"]), entry)
    kept = [e for name, e in sorted(firsts.items()) if name not in leave_out and name != "pip"]
    return [_pin(entry) for entry in kept if entry.get("version")]


def _pin(entry: dict[str, Any]) -> str:
    """A line of a requirements file.

    >>> _pin({"name": "torch", "version": "2.4.1+cpu"})
    'torch==2.4.1  # runs 2.4.1+cpu (a local build: the plain version may be another)'
    """
    name, version, source = entry["name"], str(entry["version"]), entry.get("source")
    if source and source.startswith("editable "):
        return f"# {name} {version}: an {source.replace('editable', 'editable install of', 1)}"
    if source:
        return f"# {name} {version}: installed from {source}"
    public, plus, _ = version.partition("+")
    note = f"  # runs {version} (a local build: the plain version may be another)" if plus else ""
    return f"{name}=={public}{note}"
