"""What a check finds of the installation: copies, owners, and libraries that do not load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stabsweep.environment import conda
from stabsweep.environment.distributions import computes
from stabsweep.environment.finding import Finding, shortened
from stabsweep.environment.lookup import Snapshot, look, look_list, look_text

LOADED = ("numpy", "torch")
"""What is loaded to see whether it is what its metadata says; torch loads NumPy in turn."""


def find(snapshot: Snapshot) -> list[Finding]:
    """Installations that are mixed, doubled, or other than they say.

    conda's own torch is in pip's list too, so being there means nothing. What counts is who wrote
    the metadata (`INSTALLER`; conda-build writes `conda`), which metadata conda's record owns, and
    which version is loaded.
    """
    copies: dict[str, list[dict[str, Any]]] = {}
    for entry in look_list(snapshot, "distributions"):
        copies.setdefault(str(entry.get("name")), []).append(entry)
    owned = _find_owners(snapshot, copies)
    mixed = {finding.what for finding in owned if finding.level == "error"}
    doubled = _find_doubled({name: c for name, c in copies.items() if name not in mixed})
    loaded = [_find_loaded(snapshot, name, copies, name in mixed) for name in LOADED]
    return [*owned, *doubled, *(f for found in loaded for f in found), *_find_exchange(snapshot)]


def _find_owners(snapshot: Snapshot, copies: dict[str, list[dict[str, Any]]]) -> list[Finding]:
    findings = []
    for record in look_list(snapshot, "conda"):
        name = conda.distribution_of(record)
        here = copies.get(name, [])
        if not here or not computes(name):
            continue
        others = [entry for entry in here if entry is not _brought(here, record)]
        if others:
            findings.append(_mixed(snapshot, name, record, others[0]))
        elif name == "torch":
            findings.append(
                Finding(
                    "info", name,
                    f"single install (conda) {record.get('version')}; that pip lists it as well is "
                    "as it should be",
                )
            )  # fmt: skip
    return findings


def _brought(here: list[dict[str, Any]], record: dict[str, Any]) -> dict[str, Any] | None:
    """The copy whose metadata a conda package brought."""
    for entry in here:
        if entry.get("installer") == "conda":
            return entry
    # Some conda packages kept another installer's name: then version and list of files decide.
    for entry in here:
        brought = f"{entry['name'].replace('-', '_')}-{entry.get('version')}.dist-info"
        if entry.get("version") == record.get("version") and record.get("owns") in (None, brought):
            return entry
    return None


def _mixed(snapshot: Snapshot, name: str, record: dict[str, Any], other: dict[str, Any]) -> Finding:
    theirs, ours = str(other.get("installer") or "unknown"), str(record.get("version"))
    version = str(other.get("version"))
    loaded = look_text(snapshot, f"{name}.version")
    # What is loaded decides; where nothing loads, pip: it wrote last over the files of conda.
    wins = "conda" if loaded not in ("", version) and _public(loaded) == ours else theirs
    if loaded == version == ours:  # two folders, then
        file = look_text(snapshot, f"{name}.file")
        wins = theirs if file.startswith(str(other.get("folder"))) else "conda"
    build = _build(record)
    package = record["name"]
    return Finding(
        "error", name,
        f"mixed: conda {ours}{build} / {theirs} {version}, {wins} wins",
        f"keep one: `pip uninstall {name}` until it finds none, then `conda install "
        f"--force-reinstall {package}`; or `conda remove --force {package}`, then pip install "
        f"{name} again; a fresh environment is surest",
    )  # fmt: skip


def _build(record: dict[str, Any]) -> str:
    """The variant of a conda build, where its name tells one.

    >>> _build({"build": "cpu_py38h23e632a_1"}), _build({"build": "py311h7125741_0"})
    (' (cpu)', '')
    """
    build = str(record.get("build"))
    return next((f" ({word})" for word in ("cpu", "cuda") if word in build), "")


def _public(version: str) -> str:
    return version.partition("+")[0]


def _find_doubled(copies: dict[str, list[dict[str, Any]]]) -> list[Finding]:
    findings = []
    for name, here in copies.items():
        if len(here) < 2:
            continue
        folders = {entry.get("folder") for entry in here}
        told = " and ".join(f"{e.get('version')} ({e.get('installer')})" for e in here)
        if len(folders) < len(here):
            findings.append(
                Finding(
                    "error" if computes(name) else "warning", name,
                    f"installed {len(here)} times in one folder: {told}",
                    f"`pip uninstall {name}` until it finds none, then install it again",
                )
            )  # fmt: skip
        elif len({entry.get("version") for entry in here}) > 1:
            where = " before ".join(str(entry.get("folder")) for entry in here)
            findings.append(
                Finding(
                    "warning" if computes(name) else "info", name,
                    f"{told}, the first wins: {where}",
                    "remove one, or take the folder off sys.path (PYTHONPATH, --user, "
                    "--system-site-packages)",
                )
            )  # fmt: skip
    return findings


def _find_loaded(
    snapshot: Snapshot, name: str, copies: dict[str, list[dict[str, Any]]], is_mixed: bool
) -> list[Finding]:
    if not isinstance(look(snapshot, name), dict):
        return []
    here: Sequence[dict[str, Any]] = copies.get(name, [])
    said = here[0] if here else None
    reason, file = look(snapshot, f"{name}.error"), look_text(snapshot, f"{name}.file")
    if isinstance(reason, str):
        if said is None and not file:
            return [Finding("error", name, "is not installed", f"pip install {name}")]
        what = f"{said.get('version')} ({said.get('installer')})" if said else "without metadata"
        where = file or "anywhere"
        cure = f"`pip uninstall {name}` until it finds none, then install it again"
        if name == "torch" and reason == look(snapshot, "numpy.error"):
            cure = "mend numpy first, which it loads"
        return [
            Finding(
                "error", name, f"{what} does not load from {where}: {shortened(reason)}", cure
            )
        ]  # fmt: skip
    loaded = look_text(snapshot, f"{name}.version")
    if is_mixed or not loaded or "distributions" not in snapshot:
        return []
    if said is None:
        return [
            Finding(
                "warning", name, f"{loaded} is loaded from {file}, which has no metadata",
                f"take that folder off PYTHONPATH, or pip install {name}",
            )
        ]  # fmt: skip
    version, folder = str(said.get("version")), str(said.get("folder"))
    if version != loaded:
        return [
            Finding(
                "error", name, f"{loaded} is loaded from {file}, but the metadata says {version}",
                f"`pip uninstall {name}` until it finds none, then install it again",
            )
        ]  # fmt: skip
    if file and "source" not in said and not file.startswith(folder):
        return [
            Finding(
                "error", name,
                f"is loaded from {file}, but its metadata lies in {folder}",
                "take one of the two off sys.path (PYTHONPATH, the current folder)",
            )
        ]  # fmt: skip
    return []


def _find_exchange(snapshot: Snapshot) -> list[Finding]:
    reason = look(snapshot, "torch.from_numpy.error")
    numpy = look_text(snapshot, "numpy.version")
    if not isinstance(reason, str) or not numpy:
        return []
    return [
        Finding(
            "error", "numpy",
            f"torch {look_text(snapshot, 'torch.version')} takes no arrays of NumPy {numpy}, it "
            f"was built for another one ({shortened(reason)})",
            "pip install 'numpy<2' for a torch before 2.3, or a newer torch",
        )
    ]  # fmt: skip
