"""Two environments side by side: first what can change numbers, and what it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from stabsweep.environment import conda, variables
from stabsweep.environment.distributions import computes
from stabsweep.environment.effects import (
    DRIVER,
    PLACES,
    QUIET_PLACES,
    REPEATS,
    SWITCHES,
    THREADS,
    TORCH,
    VERSION,
)
from stabsweep.environment.finding import shortened
from stabsweep.environment.lookup import Snapshot, look, look_driver, look_list, look_text

ABSENT = "not there"
"""Of what only the other has; an empty text would be that of a variable that is set to nothing."""


@dataclass(frozen=True)
class Change:
    """One thing that differs.

    Attributes:
        what: its name.
        a, b: what it is in the one and the other, `ABSENT` where it is not there.
        effect: what it does to numbers; empty where it computes nothing.
    """

    what: str
    a: str
    b: str
    effect: str = ""


@dataclass(frozen=True)
class Difference:
    """Two environments side by side.

    Attributes:
        names: what they are called.
        numeric: what differs and can change numbers, what torch computes with first.
        others: what differs and computes nothing.
        code: the commits of the projects they ran, where those differ: code, not environment.
        untold: the parts that one of them does not tell of, an older snapshot say.
    """

    names: tuple[str, str]
    numeric: tuple[Change, ...]
    others: tuple[Change, ...]
    code: Change | None
    untold: tuple[str, ...]

    @property
    def is_same(self) -> bool:
        """Whether nothing that can change numbers differs, as far as is told."""
        return not self.numeric

    def as_dict(self) -> dict[str, Any]:
        """Plain values for YAML and JSON."""
        return {
            "a": self.names[0],
            "b": self.names[1],
            "same": self.is_same,
            "numeric": [asdict(change) for change in self.numeric],
            "others": [asdict(change) for change in self.others],
            "code": asdict(self.code) if self.code else None,
            "untold": list(self.untold),
        }

    def summary(self, show_all: bool = False) -> str:
        """The difference as text: a table of what computes, the rest folded away.

        Args:
            show_all: unfold it.
        """
        lines = [f"a  {self.names[0]}", f"b  {self.names[1]}", ""]
        if self.numeric:
            lines += [f"{_count(self.numeric)} can change numbers:", *_table(self.numeric)]
        else:
            lines.append("Nothing differs that can change numbers.")
        if self.code:
            lines += ["", f"Code: {self.code.a} / {self.code.b}: compare the projects themselves"]
        if self.others and show_all:
            lines += ["", f"{_count(self.others)} compute nothing:", *_table(self.others)]
        elif self.others:
            lines += ["", f"and {_count(self.others)} that compute nothing: all=true shows them"]
        if self.untold:
            lines += ["", f"Not told by both, so not compared: {', '.join(self.untold)}"]
        return "\n".join(lines)


def diff(a: Snapshot, b: Snapshot, names: tuple[str, str] = ("a", "b")) -> Difference:
    """What differs between two snapshots.

    A part that one of them does not tell of is not compared, and named. Nor is a runtime of a
    library that only one of them had loaded.

    >>> diff({"threads": {"torch": 1}}, {"threads": {"torch": 4}}).numeric[0].effect
    'the order of summation: the 7th digit of a float32 sum'
    """
    commits = _commit(a), _commit(b)
    is_other_code = all(commits) and commits[0] != commits[1]
    parts = [name for name in dict.fromkeys([*a, *b]) if name not in ("format", "time")]
    return Difference(
        names,
        tuple(_numeric(a, b)),
        tuple(_others(a, b)),
        Change("git", *commits) if is_other_code else None,
        tuple(name for name in parts if _is_told(a, name) != _is_told(b, name)),
    )


def _numeric(a: Snapshot, b: Snapshot) -> Iterator[Change]:
    for name in ("torch", "numpy"):
        old, new = (look_text(snapshot, f"{name}.error") for snapshot in (a, b))
        if bool(old) != bool(new):
            old, new = (
                old or look_text(a, f"{name}.version"),
                new or look_text(b, f"{name}.version"),
            )
            yield from _change(name, old, new, "it does not load in one of them")
    yield from _of_mapping("", _torch(a), _torch(b), lambda name: TORCH[name])
    for what, (place, effect) in PLACES.items():
        if _is_told(a, place) and _is_told(b, place):
            yield from _change(what, look(a, place), look(b, place), effect)
    if _is_told(a, "gpu.driver") and _is_told(b, "gpu.driver"):
        old, new = (look_driver(snapshot) or None for snapshot in (a, b))
        yield from _change("driver", old, new, DRIVER)
    yield from _of_mapping("", _libraries(a), _libraries(b), lambda name: VERSION)
    yield from _of_mapping("", _runtimes(a), _runtimes(b), lambda name: VERSION)
    yield from _of_mapping("", _blas_threads(a), _blas_threads(b), lambda name: THREADS)
    yield from _of_mapping(
        "torch.", look(a, "switches"), look(b, "switches"),
        lambda name: SWITCHES.get(name, REPEATS),
    )  # fmt: skip
    yield from _of_mapping(
        "", look(a, "variables"), look(b, "variables"),
        lambda name: variables.VARIABLES.get(name, "unknown to this stabsweep"), alone=True,
    )  # fmt: skip
    minors = _minor(a), _minor(b)
    if all(minors):
        yield from _change("Python", *minors, "its own sum of floats (3.12), and other wheels")
    for prefix, found in (("", _versions(a, b)), ("conda ", _packages(a, b))):
        old, new = ({n: v for n, v in of.items() if _computes(prefix, n)} for of in found)
        yield from _of_mapping(prefix, old, new, lambda name: VERSION, alone=True)


def _others(a: Snapshot, b: Snapshot) -> Iterator[Change]:
    for place in QUIET_PLACES:
        if _is_told(a, place) and _is_told(b, place):
            yield from _change(place, look(a, place), look(b, place))
    for prefix, found in (("", _versions(a, b)), ("conda ", _packages(a, b))):
        old, new = ({n: v for n, v in of.items() if not _computes(prefix, n)} for of in found)
        yield from _of_mapping(prefix, old, new, lambda name: "", alone=True)


def _change(what: str, a: Any, b: Any, effect: str = "") -> Iterator[Change]:
    if a != b:
        yield Change(what, _shown(a), _shown(b), effect)


def _of_mapping(
    prefix: str, a: Any, b: Any, effect: Callable[[str], str], alone: bool = False
) -> Iterator[Change]:
    """What differs of two mappings; with `alone` also what only one of them has."""
    if not isinstance(a, Mapping) or not isinstance(b, Mapping) or "error" in a or "error" in b:
        return
    for name in dict.fromkeys([*a, *b]):
        if alone or (name in a and name in b):
            yield from _change(
                prefix + name, a.get(name, ABSENT), b.get(name, ABSENT), effect(name)
            )


def _torch(snapshot: Snapshot) -> dict[str, str] | None:
    """Torch's version and its variant, each on its own."""
    version = look_text(snapshot, "torch.version")
    if not version:
        return None
    public, _, local = version.partition("+")
    cuda, hip = look(snapshot, "torch.cuda"), look(snapshot, "torch.hip")
    variant = f"CUDA {cuda}" if cuda else f"ROCm {hip}" if hip else "cpu"
    return {"torch": public, "torch build": variant + (f" (+{local})" if local else "")}


def _libraries(snapshot: Snapshot) -> dict[str, str] | None:
    """What torch was built with, by name: MKL, oneDNN and the compiler, with their versions."""
    lines = look(snapshot, "torch.libraries")
    if not isinstance(lines, list):
        return None
    found = {}
    for word, name in (("Math Kernel", "MKL"), ("MKL-DNN", "oneDNN"), ("OpenMP ", "OpenMP")):
        if told := [line for line in lines if word in line]:
            found[f"torch's {name}"] = told[0]
    return found


def _runtimes(snapshot: Snapshot) -> dict[str, str]:
    return {
        f"{entry.get('kind')} of {entry.get('owner')}": " ".join(
            str(entry[key]) for key in ("version", "layer", "architecture") if entry.get(key)
        )
        for entry in look_list(snapshot, "runtimes")
    }


def _blas_threads(snapshot: Snapshot) -> dict[str, str]:
    blas = [entry for entry in look_list(snapshot, "runtimes") if entry.get("api") == "blas"]
    counts = sorted({str(entry.get("threads")) for entry in blas})
    return {"BLAS threads": ", ".join(counts)} if counts else {}


def _versions(a: Snapshot, b: Snapshot) -> list[dict[str, str]]:
    """The versions of both's distributions; torch and NumPy stand elsewhere."""
    if not all("distributions" in snapshot for snapshot in (a, b)):
        # An older snapshot tells of a few, by `versions`, which a newer one has too.
        tables = [look(snapshot, "versions") for snapshot in (a, b)]
        told = [{n: v for n, v in t.items() if v} if isinstance(t, dict) else {} for t in tables]
        if not all(told):
            return [{}, {}]
    else:
        told = []
        for snapshot in (a, b):
            firsts: dict[str, str] = {}
            for entry in look_list(snapshot, "distributions"):
                firsts.setdefault(str(entry.get("name")), str(entry.get("version")))
            told.append(firsts)
    return [{n: v for n, v in table.items() if n not in ("torch", "numpy")} for table in told]


def _packages(a: Snapshot, b: Snapshot) -> list[dict[str, str]]:
    """Version and build of both's conda packages, where conda made both."""
    tables = [
        {str(r.get("name")): f"{r.get('version')} {r.get('build')}" for r in look_list(s, "conda")}
        for s in (a, b)
    ]
    return tables if all(tables) else [{}, {}]


def _computes(prefix: str, name: str) -> bool:
    is_conda = bool(prefix)
    return computes(conda.PYTHON_NAMES.get(name, name)) or (is_conda and name in conda.RUNTIMES)


def _minor(snapshot: Snapshot) -> str:
    return ".".join(look_text(snapshot, "python.version").split(".")[:2])


def _commit(snapshot: Snapshot) -> str:
    commit = look_text(snapshot, "git.commit")[:12]
    return commit + (" changed" if commit and look(snapshot, "git.dirty") else "")


def _is_told(snapshot: Snapshot, place: str) -> bool:
    """Whether a snapshot tells of a part, or of a value in it, be it None."""
    part, dot, name = place.rpartition(".")
    inside = look(snapshot, part) if dot else snapshot
    if not isinstance(inside, Mapping) or (dot and "error" in inside) or name not in inside:
        return False
    return not (isinstance(inside[name], Mapping) and "error" in inside[name])


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else shortened(str(value)) or repr("")


def _count(changes: Sequence[Change]) -> str:
    return f"{len(changes)} difference{'s' * (len(changes) > 1)}"


def _table(changes: Sequence[Change]) -> list[str]:
    """A line for each change, and one below it for what it does."""
    width = max(len(change.what) for change in changes)
    lines = []
    for change in changes:
        lines.append(f"  {change.what:{width}}  {change.a} / {change.b}")
        if change.effect:
            lines.append(f"  {'':{width}}    {change.effect}")
    return lines
