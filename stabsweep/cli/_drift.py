"""The verb that holds the numbers of this machine against those of another."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from stabsweep.cli._words import FORMATS, OK, check_format, print_answer, print_plain, whole
from stabsweep.errors import BadInput, unknown

USAGE = (
    "stabsweep env drift [FILE] [-o FILE] [--against FILE] [picture=DIR] [device=auto] [steps=200] "
    "[format=text]"
)

_OPTIONS = {"out": "", "against": "", "picture": "", "device": "", "steps": "", "format": "text"}

_SHORT = {"-o": "out"}


def drift(words: Sequence[str]) -> int:
    """Takes the fingerprint of this machine, or compares it with another's."""
    if "-h" in words or "--help" in words:
        print(USAGE)
        return OK
    files, options = read_flags(words)
    check_format(options["format"], FORMATS)
    if len(files) > 1:
        raise BadInput(f"usage: {USAGE}, got {' '.join(files)}")
    against, out = options["against"], options["out"]
    if files and not against:
        raise BadInput(f"{files[0]} is compared with nothing: add --against FILE")
    for key in ("out", "device", "steps") if files else ():
        if options[key]:
            raise BadInput(f"{key}={options[key]} has no effect on {files[0]}, which is there")
    if options["picture"] and not against:
        raise BadInput(f"picture={options['picture']} shows a comparison: add --against FILE")
    # Whatever is wrong with a file is said before anything is computed.
    if out and (Path(out).is_dir() or not Path(out).absolute().parent.is_dir()):
        raise BadInput(f"out={out} cannot be written: give a file in a folder that is there")
    from stabsweep import fingerprint

    there = fingerprint.read(against) if against else None
    if files:
        here = fingerprint.read(files[0])
    else:
        given = whole("steps", options["steps"])
        steps = given or (there.num_steps if there else fingerprint.NUM_STEPS)
        here = fingerprint.take(options["device"] or "auto", steps, _shown)
        _shown("")
        if out:
            here.save(out)
    form = options["format"]
    if there is None:
        if form != "text":
            print_plain(here.as_dict(), form)
        else:
            print(fingerprint.summary(here))
            print(f"{'File':9}{out or 'none; -o FILE keeps it, to be compared with another'}")
        return OK
    names = files[0] if files else "this machine", against
    found = fingerprint.compare(here, there, names)
    paths = found.save(options["picture"]) if options["picture"] else []
    print_answer(found, form)
    if form == "text":
        if out:
            print(f"{'File':9}{out}")
        drawn = " ".join(map(str, paths)) or "none; picture=DIR draws drift.png and drift.svg"
        print(f"{'Picture':9}{drawn}")
    return found.exit_code


def read_flags(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The files and the options, which may be written `out=FILE`, `--out FILE` or `-o FILE`.

    Raises:
        BadInput: an option is not known, or has no value.
    """
    files, options, rest = [], dict(_OPTIONS), list(words)
    while rest:
        word = rest.pop(0)
        key, equals, value = word.partition("=")
        name = _SHORT.get(key, key.removeprefix("--"))
        if not equals and not word.startswith("-"):
            files.append(word)
            continue
        if name not in options:
            raise unknown("key", name, options)
        if not equals:
            if not rest or rest[0].startswith("-"):
                raise BadInput(f"{word} has no value: usage: {USAGE}")
            value = rest.pop(0)
        options[name] = value
    return files, options


def _shown(name: str) -> None:
    """What is being computed, on a terminal; nothing clears the line."""
    if sys.stderr.isatty():
        text = f"\rstabsweep: {name} ...\033[K" if name else "\r\033[K"
        print(text, end="", file=sys.stderr, flush=True)
