"""The words of a verb: its folders and options read, its answer printed."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from stabsweep.errors import BadInput, unknown

OK, NOT_OK, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
"""Exit codes."""

FORMATS = ("text", "json", "yaml")
"""How an answer can be printed."""


def read_words(
    usage: str,
    words: Sequence[str],
    defaults: Mapping[str, str],
    num_folders: int = 1,
    more: Collection[str] = (),
) -> tuple[list[Path], dict[str, str]]:
    """The folders and the options of a verb that takes no configuration.

    Args:
        usage: the verb and its folders, for an error.
        words: what was typed after the verb.
        defaults: option -> what holds when it is not given.
        num_folders: how many folders it takes.
        more: options that are absent when they are not given.
    """
    options = dict(defaults)
    folders = []
    for word in words:
        if word in ("-h", "--help"):
            keys = " ".join(f"[{key}={value}]" for key, value in defaults.items())
            print(f"stabsweep {usage} {keys}")
            raise SystemExit(OK)
        key, equals, value = word.partition("=")
        if not equals:
            folders.append(word)
        elif key not in defaults and key not in more:
            raise unknown("key", key, [*defaults, *more])
        else:
            options[key] = value
    if len(folders) != num_folders:
        got = " ".join(words) or "nothing"
        raise BadInput(f"usage: stabsweep {usage} [KEY=VALUE ...], got {got}")
    return [Path(folder) for folder in folders], options


def whole(key: str, text: str) -> int | None:
    """The whole number that was typed; None where nothing was."""
    try:
        return int(text) if text else None
    except ValueError:
        raise BadInput(f"{key}={text} is not a whole number") from None


def names(text: str) -> list[str]:
    """The names that were typed as `a`, `a,b` or `[a,b]`; none where nothing was."""
    return [name.strip() for name in text.strip("[]").split(",") if name.strip()]


def check_format(given: str, allowed: Sequence[str]) -> None:
    """Nothing, if an answer can be printed so.

    Raises:
        BadInput: it cannot.
    """
    if given not in allowed:
        raise unknown("format", given, allowed)


def print_result(result: Any, form: str) -> None:
    """Prints what a sweep found, and how to go on where it was interrupted."""
    if form == "text":
        print(result.summary())
        if result.interrupted:
            print(f"\nInterrupted. Go on with: stabsweep resume {result.folder}")
    else:
        print_plain(result.as_dict(), form)


def print_answer(answer: Any, form: str) -> None:
    """Prints an answer that has a `summary` and an `as_dict`."""
    if form == "text":
        print(answer.summary())
    else:
        print_plain(answer.as_dict(), form)


def print_plain(values: Any, form: str) -> None:
    """Prints plain values as JSON or YAML."""
    if form == "json":
        print(json.dumps(values, indent=2, allow_nan=False))
    else:
        print(yaml.safe_dump(values, sort_keys=False, allow_unicode=True), end="")
