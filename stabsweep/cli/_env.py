"""The verb that looks at the environment: its snapshot, what is wrong with it, how two differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from stabsweep.cli._words import (
    FORMATS,
    NOT_OK,
    OK,
    check_format,
    print_answer,
    print_plain,
    read_words,
)
from stabsweep.errors import BadInput, unknown


def env(words: Sequence[str]) -> int:
    """Looks at the environment, in the way that the first word says."""
    usage = f"usage: stabsweep env {'|'.join(VERBS)} [...]"
    if not words or words[0] in ("-h", "--help"):
        if not words:
            raise BadInput(usage)
        print("\n".join(USAGES.values()))
        return OK
    if words[0] not in VERBS:
        raise unknown("env", words[0], VERBS)
    return VERBS[words[0]](words[1:])


def snapshot(words: Sequence[str]) -> int:
    """Prints what a run would stand on now, and writes it with `out=FILE`."""
    words = _spelled_out(words)
    _, options = read_words("env snapshot", words, {"out": "", "format": "text"}, num_folders=0)
    check_format(options["format"], FORMATS)
    from stabsweep import environment
    from stabsweep.environment import runtimes, summary

    runtimes.load()
    taken = environment.take()
    if options["out"]:
        _save(Path(options["out"]), taken)
    if options["format"] != "text":
        print_plain(taken, options["format"])
        return OK
    print(summary.as_text(taken))
    print(f"{'Whole':10} {options['out'] or 'out=FILE writes it, format=json prints it'}")
    return OK


def check(words: Sequence[str]) -> int:
    """Says what is wrong with the environment, or with that of a snapshot."""
    words = _spelled_out(words)
    paths = [word for word in words if "=" not in word and not word.startswith("-")]
    own = {"audit": "false", "lock": "", "format": "text"}
    files, options = read_words("env check [FILE|DIR]", words, own, num_folders=min(len(paths), 1))
    check_format(options["format"], FORMATS)
    is_audited = _is_true("audit", options["audit"])
    if files and is_audited:
        raise BadInput(
            "audit=true looks at what is installed here, not at a snapshot: leave "
            f"{files[0]} away, or the audit"
        )
    from stabsweep import environment
    from stabsweep.environment import audit, findings, lock, runtimes

    if files:
        taken = environment.load(files[0])
    else:
        runtimes.load()
        taken = environment.take()
    if options["lock"]:
        folder = Path(options["lock"])
        if not folder.is_dir():
            raise BadInput(f"lock={folder} is no folder: give the one that the lock files lie in")
        taken = {**taken, "lock": lock.read(folder, taken)}
    found = findings.find(taken, audit.find() if is_audited else ())
    print_answer(found, options["format"])
    return OK if found.is_ok else NOT_OK


def diff(words: Sequence[str]) -> int:
    """Sets two environments side by side."""
    paths, options = read_words(
        "env diff A B", words, {"all": "false", "format": "text"}, num_folders=2
    )
    check_format(options["format"], FORMATS)
    show_all = _is_true("all", options["all"])
    from stabsweep import environment
    from stabsweep.environment import difference

    a, b = (environment.load(path) for path in paths)
    names = [
        f"{path} ({str(taken.get('time'))[:10]})" for path, taken in zip(paths, (a, b), strict=True)
    ]
    found = difference.diff(a, b, (names[0], names[1]))
    if options["format"] == "text":
        print(found.summary(show_all))
    else:
        print_plain(found.as_dict(), options["format"])
    return OK if found.is_same else NOT_OK


def export(words: Sequence[str]) -> int:
    """Writes what runs now as `environment.yml` and `requirements.txt`."""
    words = _spelled_out(words)
    paths = [word for word in words if "=" not in word and not word.startswith("-")]
    folders, options = read_words(
        "env export [DIR]", words, {"force": "false"}, num_folders=min(len(paths), 1)
    )
    force = _is_true("force", options["force"])
    from stabsweep import environment
    from stabsweep.environment import export, lock

    taken = environment.take()
    folder = folders[0] if folders else Path()
    written = export.export(folder, taken, force)
    held = {entry["file"]: entry for entry in lock.read(folder, taken)}
    for path in written:
        print(f"{path}: {held[path.name]['pinned']} versions")
    print(f"`stabsweep env check lock={folder}` says whether what runs still matches them")
    return OK


def drift(words: Sequence[str]) -> int:
    """Takes the numerical fingerprint of this machine, or compares it with another's."""
    from stabsweep.cli import _drift

    return _drift.drift(words)


VERBS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "snapshot": snapshot,
    "check": check,
    "diff": diff,
    "export": export,
    "drift": drift,
}
"""Second word -> what runs the words after it."""

USAGES: Mapping[str, str] = {
    "snapshot": "stabsweep env snapshot [out=FILE] [format=text|json|yaml]",
    "check": "stabsweep env check [FILE|DIR] [audit=true] [lock=DIR] [format=text|json|yaml]",
    "diff": "stabsweep env diff A B [all=true] [format=text|json|yaml]",
    "export": "stabsweep env export [DIR] [force=true]",
    "drift": "stabsweep env drift [FILE] [-o FILE] [--against FILE] [picture=DIR] [device=auto]",
}
"""Second word -> what may follow it."""

_FLAGS = {"--audit": "audit=true", "--force": "force=true"}


def _spelled_out(words: Sequence[str]) -> list[str]:
    """The words with `-o FILE` and flags spelled as options, `out=FILE`."""
    spelled, rest = [], list(words)
    while rest:
        word = rest.pop(0)
        if word in ("-o", "--out"):
            if not rest:
                raise BadInput(f"{word} names no file: give {word} FILE, or out=FILE")
            word = f"out={rest.pop(0)}"
        spelled.append(_FLAGS.get(word, word))
    return spelled


def _is_true(key: str, given: str) -> bool:
    if given not in ("true", "false"):
        raise unknown(key, given, ("true", "false"))
    return given == "true"


def _save(path: Path, taken: Mapping[str, object]) -> None:
    from stabsweep import environment

    try:
        environment.save(path, taken)
    except OSError as error:
        raise BadInput(f"cannot write out={path}: {error.strerror}") from None
