"""The files that pin an environment, and whether what runs now still matches them."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from stabsweep.environment import conda
from stabsweep.environment.distributions import canonical
from stabsweep.environment.finding import Finding
from stabsweep.environment.lookup import Snapshot, look_list, look_text

MARK = "written by `stabsweep env export`"
"""Stands in the first line of a file that is ours."""

READ = ("environment.yml", "environment.yaml", "requirements*.txt")
"""The files that are read: conda's, and pip's."""

OTHERS = ("conda-lock.yml", "pixi.lock", "uv.lock", "poetry.lock", "Pipfile.lock", "pylock.toml")
"""Lock files of other tools: they count as one, but are not read; their own tools check them."""

MAX_BYTES = 1_000_000
"""A file that is larger is not read: chosen by us, for a snapshot is taken before every sweep."""

MAX_NAMED = 6
"""How many packages a finding names; chosen by us, for it is one line."""

_RUNS = re.compile(r"([A-Za-z0-9_.-]+)==\S+\s+# runs (\S+)")
_CONDA = re.compile(r"^(?:[\w.-]+::)?([A-Za-z0-9_.-]+)\s*(.*)$")


def read(folder: Path, snapshot: Snapshot) -> list[dict[str, Any]]:
    """The lock files of a folder, each held against what runs.

    Args:
        folder: where they lie; those below it are not looked at.
        snapshot: what runs: its `distributions`, `conda` and `python`.

    Returns:
        `{file, ours, pinned, loose, differs, unlisted}` each: whether `export` wrote it, how many
        packages it pins to one version and how many to a range, `{name, wants, has}` of those that
        run otherwise (`has` is None for one that is missing), and, of our own files, what runs and
        is not in it. `{file}` alone is another tool's lock; with `error`, one that cannot be read.
    """
    paths = {path for pattern in READ for path in folder.glob(pattern) if path.is_file()}
    found = [_held(path, snapshot) for path in sorted(paths)]
    return found + [{"file": name} for name in OTHERS if (folder / name).is_file()]


def find(snapshot: Snapshot) -> list[Finding]:
    """Whether there is a lock file, and whether what runs now still matches it."""
    if "lock" not in snapshot:
        return []
    locks = look_list(snapshot, "lock")
    findings = [finding for entry in locks for finding in _judge(entry)]
    if not any(_is_lock(entry) for entry in locks):
        loose = [str(entry["file"]) for entry in locks if entry.get("loose")]
        told = f": {' and '.join(loose)} gives ranges, not versions" if loose else ""
        cure = "`stabsweep env export DIR` writes what runs now"
        findings.append(Finding("info", "lock", f"no lock file{told}", cure))
    return findings


def _is_lock(entry: dict[str, Any]) -> bool:
    """Whether a file pins most of what it names: `python=3.11` above ranges locks nothing."""
    return "error" not in entry and entry.get("pinned", 1) > entry.get("loose", 0)


def _judge(entry: dict[str, Any]) -> list[Finding]:
    file = str(entry.get("file"))
    if "error" in entry:
        return [Finding("warning", file, f"cannot be read: {entry['error']}", "correct it")]
    differs, unlisted = entry.get("differs") or [], entry.get("unlisted") or []
    told = []
    if differs:
        each = [f"{d['name']} {d['wants']} (runs {d['has'] or 'not at all'})" for d in differs]
        told.append(f"{len(differs)} of {entry['pinned'] + entry['loose']} differ: {_few(each)}")
    if unlisted:
        told.append(f"{len(unlisted)} run that it does not name: {_few(unlisted)}")
    if told:
        again = (
            "`stabsweep env export force=true` writes it anew" if entry.get("ours") else "edit it"
        )
        cure = f"install what it names, or {again}"
        return [Finding("warning", file, "what runs does not match: " + "; ".join(told), cure)]
    if _is_lock(entry) and entry.get("pinned"):
        return [Finding("info", file, f"what runs matches all {entry['pinned']} of its versions")]
    return []


def _few(names: list[str]) -> str:
    rest = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _held(path: Path, snapshot: Snapshot) -> dict[str, Any]:
    """One file against what runs."""
    entry: dict[str, Any] = {"file": path.name}
    try:
        if path.stat().st_size > MAX_BYTES:
            return {**entry, "error": f"it is larger than {MAX_BYTES} bytes"}
        text = path.read_text(encoding="utf-8")
        wishes = list(_conda_wishes(text) if path.suffix != ".txt" else _pip_wishes(text))
        exact = {canonical(name): version for name, version in _RUNS.findall(text)}
        differs = [
            d for name, spec, of in wishes if (d := _differs(name, spec, of, exact, snapshot))
        ]
    except Exception as error:  # another person's file: YAML, packaging and Unicode raise their own
        return {**entry, "error": " ".join(f"{type(error).__name__}: {error}".split())}
    ours = MARK in text.partition("\n")[0]
    pinned = sum(_is_pin(spec, of) for _, spec, of in wishes)
    return {
        **entry,
        "ours": ours,
        "pinned": pinned,
        "loose": len(wishes) - pinned,
        "differs": differs,
        "unlisted": _unlisted({name for name, _, _ in wishes}, path, snapshot) if ours else [],
    }


def _unlisted(names: set[str], path: Path, snapshot: Snapshot) -> list[str]:
    """What runs and is not in a file, of what `export` would have written into it."""
    records = {str(record["name"]) for record in look_list(snapshot, "conda")}
    is_condas = path.suffix != ".txt" and bool(records)
    runs = {
        str(entry["name"])
        for entry in look_list(snapshot, "distributions")
        if "source" not in entry
        and entry.get("version")
        and not (is_condas and entry.get("installer") == "conda")
    }
    known = names | {conda.PYTHON_NAMES.get(name, canonical(name)) for name in names}
    return sorted((runs | (records if is_condas else set())) - known - {"pip"})


def _pip_wishes(text: str) -> Iterable[tuple[str, str, str]]:
    """Name, specifier and `pip` of each line that names a package, not a place or an option."""
    requirements = importlib.import_module("packaging.requirements")
    for line in re.sub(r"\\\s*\n", " ", text).splitlines():
        line = re.sub(r"(^|\s)#.*$|\s--hash=\S+", "", line).strip()
        if not line or line.startswith("-") or "://" in line:
            continue
        wish = requirements.Requirement(line)
        if wish.marker is None or wish.marker.evaluate({"extra": ""}):
            yield wish.name, str(wish.specifier), "pip"


def _conda_wishes(text: str) -> Iterable[tuple[str, str, str]]:
    """Name, specifier and `conda` or `pip` of each dependency of an `environment.yml`."""
    told = yaml.safe_load(text)
    for item in told["dependencies"] or []:
        if isinstance(item, dict):
            yield from _pip_wishes("\n".join(str(line) for line in item.get("pip") or []))
        elif found := _CONDA.match(str(item)):
            yield found[1].lower(), _conda_spec(found[2].strip()), "conda"


def _conda_spec(told: str) -> str:
    """A version as conda may be told it, in one spelling; empty where it is told in brackets.

    >>> _conda_spec("1.26.4 py311_0"), _conda_spec("1.26.*"), _conda_spec(">=4.0, <6")
    ('==1.26.4=py311_0', '=1.26.*', '>=4.0,<6')
    """
    if told.startswith("["):
        return ""
    if not told or told[0] in "=<>!~":
        return told.replace(" ", "")
    version, _, build = told.partition(" ")
    return f"{'=' if '*' in version else '=='}{version}{'=' if build else ''}{build.strip()}"


def _is_pin(spec: str, of: str) -> bool:
    if of == "conda":
        return bool(re.match(r"^=+[^=*,]+(=[^=*,]+)?$", spec))
    return bool(re.match(r"^===?[^*,]+$", spec))


def _differs(
    name: str, spec: str, of: str, exact: dict[str, str], snapshot: Snapshot
) -> dict[str, Any] | None:
    """What a file wants and does not get; None where it does, or where that cannot be told."""
    build = None
    records = {str(r["name"]): r for r in look_list(snapshot, "conda")}
    known = conda.PYTHON_NAMES.get(name, canonical(name)) if of == "conda" else canonical(name)
    if of == "conda" and name in records:
        has, build = records[name]["version"], records[name]["build"]
    elif known == "python":
        has = look_text(snapshot, "python.version")
    else:
        here = [d for d in look_list(snapshot, "distributions") if d["name"] == known]
        has = here[0]["version"] if here else None
    if has is None and of == "conda" and not records and known == canonical(name):
        return None  # it may be a package that is not Python, and conda is not there to tell
    if has is not None and known in exact and of == "pip":
        return None if has == exact[known] else {"name": name, "wants": exact[known], "has": has}
    if has is not None and _meets(has, build, spec, of):
        return None
    return {"name": name, "wants": spec.lstrip("=") or "any version", "has": has}


def _meets(version: str, build: str | None, spec: str, of: str) -> bool:
    """Whether a version is what was asked for."""
    if of == "conda" and spec.startswith("="):
        wanted, _, wanted_build = spec.lstrip("=").partition("=")
        wanted = wanted.removesuffix("*").removesuffix(".")
        # One `=` leaves the rest of the version open, two do not.
        begins = not spec.startswith("==") and version.startswith(f"{wanted}.")
        same = version == wanted or begins or version.partition("+")[0] == wanted
        return same and (build is None or not wanted_build or _matches(build, wanted_build))
    try:
        specifiers = importlib.import_module("packaging.specifiers").SpecifierSet(spec)
        return specifiers.contains(version, prereleases=True)
    except ValueError:
        return True  # conda's own spelling (2024a, 1.8|1.9), which cannot be told here


def _matches(build: str, pattern: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), build) is not None
