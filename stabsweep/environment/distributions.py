"""The distributions that are installed: name, version, who installed them, and where."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

COMPUTING = frozenset(
    "intel-openmp jax jaxlib llvm-openmp mkl numpy optuna scikit-learn scipy torch torchaudio "
    "torchvision triton pytorch-triton pytorch-triton-rocm".split()
)
"""Distributions whose version can change numbers; so do all of NVIDIA's, see `computes`.

Ours: what a sweep computes with. Optuna is one of them, for its samplers choose what is tried.
"""


def computes(name: str) -> bool:
    """Whether another version of a distribution can change numbers.

    >>> computes("numpy"), computes("nvidia-cublas-cu12"), computes("rich")
    (True, True, False)
    """
    return name in COMPUTING or name.startswith("nvidia-")


def canonical(name: str) -> str:
    """The one spelling of a distribution's name.

    References:
        The specification of name normalisation (PEP 503).

    >>> canonical("Scikit_Learn")
    'scikit-learn'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def read(folders: Iterable[str] | None = None) -> list[dict[str, Any]]:
    """What is installed in some folders, in their order, then by name.

    Read from the names of the folders of metadata (`torch-2.4.1.dist-info`) and their `INSTALLER`:
    to parse the metadata itself takes thirty times as long. A distribution that is found twice
    stands there twice; that is the point.

    Args:
        folders: where to look; `sys.path` when not given.

    Returns:
        `{name, version, installer, folder}` each, None for what is not told, and `source` for what
        was not installed from an index: where from, without a password.
    """
    found, seen = [], set()
    for folder in sys.path if folders is None else folders:
        # lib64 is a link to lib in many environments: the same folder, not a second copy.
        place = os.path.realpath(folder or os.getcwd())
        if place in seen:
            continue
        seen.add(place)
        entries = (_read_one(place, name) for name in _names(place))
        found += sorted(filter(None, entries), key=lambda entry: entry["name"])
    return found


def find_module(name: str) -> str | None:
    """The file that `import name` would load, without loading it."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None or spec.origin is None:
        return None
    # Spelled as `read` spells folders; what lies below may be a link of an installer's own.
    file = Path(spec.origin)
    return os.path.join(os.path.realpath(file.parents[1]), file.parent.name, file.name)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _read_one(place: str, folder: str) -> dict[str, Any] | None:
    stem, dot, ending = folder.rpartition(".")
    # What begins with ~ is the rest of an uninstall that was interrupted.
    if not dot or ending not in ("dist-info", "egg-info") or stem.startswith("~"):
        return None
    # Text, not pathlib, and one listing in place of three questions: a third of the time.
    metadata = f"{place}{os.sep}{folder}"
    files = _names(metadata)
    if ending == "dist-info":
        if "METADATA" not in files:
            return None
        name, _, version = stem.rpartition("-")
    else:
        stem = re.sub(r"-py\d+(\.\d+)?(-.+)?$", "", stem)
        name, _, version = stem.partition("-")
        version = version or _version_told(Path(metadata, "PKG-INFO"))
    if not name:
        return None
    entry = {
        "name": canonical(name),
        "version": version or None,
        "installer": _first_line(f"{metadata}{os.sep}INSTALLER") if "INSTALLER" in files else None,
        "folder": place,
    }
    # Of conda's packages it names the folder that they were built in, on another machine.
    if "direct_url.json" in files and entry["installer"] != "conda":
        if source := _source(Path(metadata, "direct_url.json")):
            entry["source"] = source
    return entry


def _first_line(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            return file.readline().strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _version_told(path: Path) -> str | None:
    try:
        told = re.search(r"^Version: (\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    except (OSError, UnicodeDecodeError):
        return None
    return told[1] if told else None


def _source(path: Path) -> str | None:
    """Where a distribution came from that no index gave, as its `direct_url.json` tells (PEP 610).

    >>> _source(Path("nowhere"))
    """
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        url = without_secrets(str(told["url"]))
        if told.get("dir_info", {}).get("editable"):
            return f"editable {url}"
        commit = told.get("vcs_info", {}).get("commit_id")
        return f"{told['vcs_info'].get('vcs', 'git')}+{url}@{commit}" if commit else url
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def without_secrets(url: str) -> str:
    """An address without user, password, token and query.

    >>> without_secrets("https://me:p@w@example.org/t/tk-123/forge?key=1")
    'https://example.org/forge'
    """
    url = re.sub(r"(?<=://)[^/]*@", "", url.partition("?")[0].partition("#")[0])
    # A private channel of conda carries its token in the path.
    return re.sub(r"/t/[^/]+(?=/|$)", "", url)
