"""Writes the pages that say what the code says: `docs/verdicts.md` and `docs/config.md`.

    python docs/generate.py

`tests/test_docs.py` holds the committed pages against it. Nothing is worded here but headings. The
words of a verdict are those of the enum, its truth table is the docstring of `judge`, a threshold's
meaning that of `Thresholds`. A key's meaning is the comment beside it in `conf/`, or `about` in
`stabsweep.limits`; what it may be is what the code checks, or `allowed:` in its comment.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import yaml

from stabsweep import clipper, model, optimizer, sampler, task
from stabsweep.cli._words import FORMATS
from stabsweep.config import Schema
from stabsweep.engine import ENGINES, PRECISIONS
from stabsweep.evidence import DEFAULTS, Thresholds
from stabsweep.limits import CHOICES, LIMITS, Limit
from stabsweep.model._init import ALLOWED
from stabsweep.numerals import rate
from stabsweep.plan import COUNTS
from stabsweep.records import Verdict
from stabsweep.space import Axis
from stabsweep.verdict import judge

HERE = Path(__file__).resolve().parent
CONF = HERE.parent / "conf"
NOTICE = "<!-- Written by docs/generate.py: change what it reads, not this page. -->"

NAMES = {
    "schedule": optimizer.SCHEDULES,
    "init": ALLOWED,
    "precision": tuple(PRECISIONS),
    "format": FORMATS,
    "engine": ENGINES,
}
"""Keys that are one name out of some, as the code lists them."""
CLASSES: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "model": model.MODELS,
    "task": task.TASKS,
    "optimizer": optimizer.OPTIMIZERS,
    "clipper": clipper.CLIPPERS,
    "sampler": sampler.SAMPLERS,
}
"""Group -> what its choices build, whose arguments are typed."""
GROUPS = (*CLASSES, "pruner", "engine", "executor")

# ------------------------------------------------------------------------------ the keys


@dataclass(frozen=True)
class Key:
    """A key of the configuration, as a row of a table."""

    name: str
    kind: str
    unit: str
    allowed: str
    default: str
    about: str


@dataclass(frozen=True)
class Line:
    """A line of a configuration file: a key, its value as it is written, and its comment."""

    key: str
    value: str
    comment: str


def lines(text: str) -> Iterator[Line]:
    for found in re.finditer(r"^ *(\w+): (.*?)(?:  # (.*))?$", text, re.MULTILINE):
        yield Line(found[1], found[2], found[3] or "")


def described(name: str, line: Line, options: Sequence[str], kind: str = "") -> Key:
    """A key whose comment reads `meaning; unit: ...; allowed: ...`, both perhaps left away.

    Args:
        name: the key, with its group.
        line: where it stands.
        options: the names that the code allows; empty for a key that is no such choice.
        kind: its type where the value does not show it.

    Raises:
        SystemExit: nobody says what it means or may be, or two do.
    """
    about, _, allowed = line.comment.partition("; allowed: ")
    about, _, unit = about.partition("; unit: ")
    value = yaml.safe_load(line.value) if "${" not in line.value else line.value
    limit, count = LIMITS.get(line.key), COUNTS.get(line.key)
    checked = ", ".join(f"`{option}`" for option in options)
    if count:
        checked, kind = span(*count), "whole number"
    elif limit:
        checked, kind = bounds(limit), "whole number" if limit.integer else "number"
        about = about or limit.about
    elif isinstance(value, bool) and not allowed:
        checked, kind = "`true`, `false`", "switch"
    elif options:
        kind = "name"
        before, _, listed = about.rpartition(": ")
        if {*listed.split(", ")} == {re.sub("[<>]", "", option) for option in options}:
            about = before
    if bool(checked) == bool(allowed):
        raise SystemExit(f"{name}: its range is said {'twice' if allowed else 'nowhere'}")
    if not about:
        raise SystemExit(f"{name}: nobody says what it means: add it to its comment in conf/")
    return Key(name, kind or kind_of(value, allowed), unit, checked or allowed, line.value, about)


def kind_of(value: Any, allowed: str) -> str:
    if {"true", "auto"} & {*allowed.split(", ")}:
        return "name"
    if isinstance(value, Mapping) or "factors" in allowed:
        return "mapping"
    if isinstance(value, list):
        return "list"
    if isinstance(value, float) or (value is None and "> 0" in allowed):
        return "number"
    if isinstance(value, int) or (value is None and ">=" in allowed):
        return "whole number"
    return "text"


def span(low: float, high: float) -> str:
    return f">= {low}" if high >= 2**62 else f"{low} to {rate(high)}"


def bounds(limit: Limit) -> str:
    """What a limit allows, without the type, which has a column of its own."""
    return re.sub(r"^a (finite|whole) number ?", "", str(limit)).removeprefix(", ") or "any"


def annotations(group: str, choice: str) -> Mapping[str, Any]:
    built = CLASSES.get(group, {}).get(choice)
    if built is None:
        return {}
    return get_type_hints(built.__init__ if inspect.isclass(built) else built)


def options_of(group: str, choice: str, key: str) -> Sequence[str]:
    """The names that an argument may be by its type; none where it is no `Literal`."""
    hint = annotations(group, choice).get(key)
    names = [part for part in (hint, *get_args(hint)) if get_origin(part) is Literal]
    return [*get_args(names[0]), *(["null"] if names[0] is not hint else [])] if names else ()


def keys_of(group: str) -> list[Key]:
    """The keys of a group's choices; where several say the same it is one row."""
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    choices = sorted(path.stem for path in (CONF / group).glob("*.yaml"))
    for choice in choices:
        for line in own_lines(group, choice):
            key = described(f"{group}.{line.key}", line, options_of(group, choice, line.key))
            same = (key.name, key.kind, key.unit, key.allowed, key.about)
            rows.setdefault(same, {})[choice] = key.default
    merged = []
    for (name, kind, unit, allowed, about), defaults in sorted(
        rows.items(), key=lambda row: row[0][0]
    ):
        groups: dict[str, list[str]] = {}
        for choice, default in defaults.items():
            groups.setdefault(default, []).append(choice)
        shown = "; ".join(f"{default} ({', '.join(names)})" for default, names in groups.items())
        merged.append(Key(name, kind, unit, allowed, shown, about))
    return merged


def own_lines(group: str, choice: str) -> Iterator[Line]:
    """The lines of a choice's file that are its own arguments."""
    text = read(group, choice)
    if text.startswith("# @package _global_"):
        text = text.split(f"\n{group}:\n")[1].split("\n\n")[0]
        text = re.split(r"^\S", text, maxsplit=1, flags=re.MULTILINE)[0]
    return (line for line in lines(text) if line.key not in ("name", "_"))


def read(group: str, choice: str) -> str:
    return (CONF / group / f"{choice}.yaml").read_text(encoding="utf-8")


def about_choice(group: str, choice: str) -> str:
    """The comment that a choice's file begins with."""
    text = read(group, choice).removeprefix("# @package _global_\n")
    comment = re.match(r"(?:#.*\n)+", text)
    if comment is None:
        raise SystemExit(f"conf/{group}/{choice}.yaml does not begin with what it is for")
    return " ".join(comment[0].replace("#", "").split())


def changed_by(choice: str) -> str:
    """What a model sets besides its own arguments."""
    text = read("model", choice)
    given = yaml.safe_load(text)
    words = [
        f"{key.removeprefix('override /')}={value}"
        for entry in given.pop("defaults", [])
        for key, value in entry.items()
    ]
    given.pop("model")
    return ", ".join(f"`{word}`" for word in [*words, *flat(given)])


def flat(given: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in given.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}={value}"


def config_text() -> str:
    """`conf/config.yaml` without what it tells Hydra."""
    return (CONF / "config.yaml").read_text(encoding="utf-8").split("\nhydra:")[0]


def top_keys() -> list[Key]:
    """The keys that stand in no group."""
    kinds = {"Any": "", "int": "whole number", "float": "number", "str": "", "bool": "switch"}
    keys = [
        described(line.key, line, NAMES.get(line.key, ()), kinds[Schema.__annotations__[line.key]])
        for line in lines(config_text())
    ]
    return [replace(key, kind="number, list") if key.name == "seeds" else key for key in keys]


def config_page() -> str:
    config, keys = config_text(), top_keys()
    parts = [
        "# Every key of the configuration",
        NOTICE,
        "`KEY=VALUE` on the command line overrides any of them; `stabsweep --help` prints the "
        "values that hold. A key\nof a choice is written with its group, `optimizer.momentum=0.5`. "
        "Whole numbers may be written `1e3`. An empty unit\nis that of a pure number or a name.",
        table(keys),
        "`hydra.run.dir=DIR` puts the results into a folder of your choice instead of "
        "`results/NAME/TIME`.",
    ]
    for group in GROUPS:
        choices = sorted(path.stem for path in (CONF / group).glob("*.yaml"))
        chosen = re.search(rf"^  - {group}: (\w+)$", config, re.MULTILINE)
        assert chosen
        parts.append(f"## `{group}=`")
        parts.append(f"Default: `{chosen[1]}`.")
        head = ["choice", "what it is"]
        body = [[f"`{choice}`", about_choice(group, choice)] for choice in choices]
        if group == "model":
            head.append("what it sets besides")
            body = [[*row, changed_by(choice)] for row, choice in zip(body, choices, strict=True)]
        parts.append(markdown(head, body))
        if own := keys_of(group):
            parts.append(table(own))
    parts += [
        "## `space=`",
        "Default: `lr_warmup`. A model may set other ends of the range of `lr`.",
    ]
    spaces = sorted(path.stem for path in (CONF / "space").glob("*.yaml"))
    parts.append(
        markdown(
            ["choice", "what it is", "axes"],
            [
                [
                    f"`{name}`",
                    about_choice("space", name),
                    axes_of(yaml.safe_load(read("space", name))),
                ]
                for name in spaces
            ],
        )
    )
    parts += [
        "An axis, `space.NAME.KEY=VALUE` (`+space.NAME.KEY=VALUE` for a new one), has these keys:"
    ]
    parts.append(markdown(["key", "what it is"], attributes(Axis, skip=("name",))))
    parts.append("These can be axes without `to:`, besides the numbers of [clippers](clippers.md):")
    about = {key.name: key.about.split("; ")[0] for key in keys}
    numbers = [
        [f"`{name}`", bounds(limit), limit.about or about[name]]
        for name, limit in LIMITS.items()
        if not name.startswith("clip_") or name == "clip_norm"
    ]
    names = [[f"`{name}`", "names", f"see `{name}=`"] for name in CHOICES]
    parts.append(markdown(["axis", "allowed", "what it is"], [*numbers, *names]))
    parts += ["## `experiment=`", "A whole sweep with its settings; each shows one thing."]
    experiments = sorted(path.stem for path in (CONF / "experiment").glob("*.yaml"))
    parts.append(markdown(["choice", "what it shows"], [[f"`{n}`", shows(n)] for n in experiments]))
    return "\n\n".join(parts) + "\n"


def axes_of(space: Mapping[str, Any]) -> str:
    shown = []
    for name, axis in space.items():
        values = axis.get("values")
        ends = f"{rate(axis['low'])} to {rate(axis['high'])}" if values is None else ""
        shown.append(
            f"`{name}` " + (ends or ", ".join("null" if v is None else str(v) for v in values))
        )
    return "; ".join(shown)


def shows(experiment: str) -> str:
    """The first sentence of what an experiment shows."""
    sentence = re.search(
        r"Shows: (.*?)(?<! al)[.](?= [A-Z]|$)", about_choice("experiment", experiment)
    )
    if sentence is None:
        raise SystemExit(f"conf/experiment/{experiment}.yaml does not say what it shows")
    return sentence[1]


# ------------------------------------------------------------------------------ the verdicts


def verdicts_page() -> str:
    def told(verdict: Verdict) -> str:
        if not verdict.is_judged:
            return "not judged"
        return "yes" if verdict.is_learned else "yes, but no use" if verdict.is_stable else "no"

    rows = [[f"`{v.label}`", v.value, told(v)] for v in Verdict]
    doc = inspect.getdoc(judge) or ""
    before, truth = doc.split("\n| # |")
    truth, after = ("| # |" + truth).split("\n\n", 1)
    words = inspect.getdoc(Thresholds) or ""
    words = words.split("\n\n")
    limits = [
        [f"`{name}`", ", ".join(f"{getattr(DEFAULTS, one):g}" for one in name.split(", ")), about]
        for name, about in (
            (name.replace("`", ""), about) for name, about in attributes(Thresholds)
        )
    ]
    known = {one for name, *_ in limits for one in name.strip("`").split(", ")}
    if missing := {field.name for field in fields(Thresholds)} - known:
        raise SystemExit(f"Thresholds does not say what these mean: {sorted(missing)}")
    parts = [
        "# What the verdicts mean",
        NOTICE,
        "A verdict is what one trial did, in one word. *Stable* counts for the map; *not judged* "
        "says nothing about the\nlearning rate.",
        markdown(["verdict", "what happened", "stable"], rows),
        "## How a curve is judged",
        prose(before),
        truth,
        prose(after.split("\n\nArgs:")[0]),
        "## The thresholds",
        prose(words[0]),
        prose(words[1]),
        "Another threshold, on curves that are there: `stabsweep judge DIR learned=0.1` tells what "
        "would change.",
        markdown(["threshold", "default", "what it is, and why"], limits),
    ]
    return "\n\n".join(parts) + "\n"


def attributes(cls: type, skip: Sequence[str] = ()) -> list[list[str]]:
    """Name and text of what a docstring lists under Attributes."""
    doc = (inspect.getdoc(cls) or "").split("Attributes:\n")[1]
    found = re.findall(r"^    (\w[\w, ]*): (.*(?:\n        .*)*)", doc, re.MULTILINE)
    return [[f"`{name}`", joined(text)] for name, text in found if name not in skip]


def joined(text: str) -> str:
    """A text without its line breaks, for a cell of a table."""
    return " ".join(text.split())


def prose(text: str) -> str:
    """Paragraphs, as wide as those of the other pages."""
    return "\n\n".join(textwrap.fill(joined(part), 118) for part in text.split("\n\n"))


# ------------------------------------------------------------------------------ tables


def table(keys: Sequence[Key]) -> str:
    head = ["key", "type", "unit", "allowed", "default", "what it is"]
    rows = [
        [
            f"`{k.name}`",
            k.kind,
            k.unit,
            k.allowed,
            f"`{k.default}`" if "(" not in k.default else k.default,
            k.about,
        ]
        for k in keys
    ]
    return markdown(head, rows)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return "\n".join([row(head), "|" + "---|" * len(head), *map(row, rows)])


PAGES: Mapping[str, Callable[[], str]] = {"verdicts.md": verdicts_page, "config.md": config_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")
        print(f"docs/{name}")
