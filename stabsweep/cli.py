"""The command line: a verb and its arguments, or a sweep with Hydra overrides."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from stabsweep import config as configuration
from stabsweep.errors import BadInput, unknown

OK, NOT_OK, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code.

    Args:
        argv: what was typed after the name of the program; None reads `sys.argv`.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    verb = words.pop(0) if words and words[0] in VERBS else ""
    try:
        if verb:
            return VERBS[verb](words)
        return _sweep(words)
    except BrokenPipeError:
        # Whoever read the output, `head` say, has seen enough; Python would complain once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except (BadInput, HydraException, OmegaConfBaseException, OSError) as error:
        print(f"stabsweep: {_one_line(error)}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("stabsweep: interrupted", file=sys.stderr)
        return INTERRUPTED


def _one_line(error: Exception) -> str:
    if isinstance(error, BadInput):
        return str(error)
    # Some of Hydra's own errors are OSErrors as well.
    if isinstance(error, OSError) and not isinstance(error, HydraException):
        where = f" {error.filename}" if error.filename else " a file"
        return f"cannot use{where} ({error.strerror}): choose another folder (hydra.run.dir=DIR)"
    return configuration.explain(error)


def _sweep(words: Sequence[str]) -> int:
    for word in words:
        if not word.startswith("-") and "=" not in word and not word.startswith("~"):
            raise unknown("verb", word, [*VERBS, "KEY=VALUE"])
    # Hydra's parser takes no flag between two overrides.
    words = sorted(words, key=lambda word: word not in ("-m", "--multirun"))
    words = configuration.read_overrides(words)
    configuration.register()
    existing = _existing_folders(words)
    codes: list[int] = []
    errors: list[BadInput] = []

    def job(config: DictConfig) -> float:
        try:
            code, loss = _run_job(config, existing)
        except BadInput as error:
            # Raised here Hydra would print lines of its own; the other jobs of `-m` go on.
            errors.append(error)
            return math.nan
        if code == INTERRUPTED:
            # Out of Hydra's outer loop as well: its other jobs must not begin.
            raise KeyboardInterrupt
        codes.append(code)
        return loss

    # Without it Hydra prints a traceback of its own and exits with 1.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    sys.argv = [sys.argv[0], *words]
    wrapped = hydra.main(
        version_base="1.3",
        config_path=str(configuration.find_folder()),
        config_name="config",
    )(job)
    wrapped()
    if errors:
        raise errors[0]
    return max(codes, default=OK)


def _run_job(config: DictConfig, existing: Collection[Path]) -> tuple[int, float]:
    """One sweep with a composed configuration; its exit code, and the pick's loss."""
    folder = Path(HydraConfig.get().runtime.output_dir)
    try:
        arguments = configuration.read_arguments(config)
        _check_format(config.format, configuration.FORMATS)
        from stabsweep.api import sweep

        result = sweep(**arguments, folder=_shown(folder), watcher=config.progress)
    except (BadInput, OmegaConfBaseException) as error:
        # Hydra makes the folder before anything can be checked.
        _remove_empty(folder, existing)
        raise BadInput(_one_line(error)) from error
    _print_result(result, config.format)
    loss = result.pick.final_loss
    code = INTERRUPTED if result.interrupted else OK if result.pick.is_ok else NOT_OK
    return code, math.inf if loss is None else loss


_RESUME = {"progress": "auto", "format": "text", "storage": ""}


def _resume(words: Sequence[str]) -> int:
    (folder,), options = _read_words("resume DIR", words, _RESUME)
    _check_format(options["format"], configuration.FORMATS)
    from stabsweep.api import resume

    result = resume(folder, options["progress"], options["storage"] or None)
    _print_result(result, options["format"])
    return INTERRUPTED if result.interrupted else OK if result.pick.is_ok else NOT_OK


def _report(words: Sequence[str]) -> int:
    (folder,), options = _read_words("report DIR", words, {"format": "text"})
    _check_format(options["format"], configuration.FORMATS)
    from stabsweep.result import load

    result = load(folder)
    result.save_report()
    _print_result(result, options["format"])
    return OK if result.pick.is_ok else NOT_OK


def _pick(words: Sequence[str]) -> int:
    (folder,), options = _read_words("pick DIR", words, {"format": "text"})
    _check_format(options["format"], (*configuration.FORMATS, "overrides", "flags"))
    from stabsweep.result import load

    pick = load(folder).pick
    if options["format"] in ("overrides", "flags"):
        if not pick.is_ok:
            print(f"stabsweep: no pick. {pick.reason}", file=sys.stderr)
            return NOT_OK
        print(" ".join(pick.overrides() if options["format"] == "overrides" else pick.flags()))
    elif options["format"] == "text":
        print(f"lr={pick.lr}" if pick.is_ok else "none")
        print(pick.reason)
        for warning in pick.warnings:
            print(f"! {warning}")
    else:
        _print_plain(pick.as_dict(), options["format"])
    return OK if pick.is_ok else NOT_OK


def _judge(words: Sequence[str]) -> int:
    from stabsweep.rejudging import THRESHOLD_NAMES, parse_thresholds, rejudge

    own = {"save": "false", "format": "text"}
    usage = "judge DIR [THRESHOLD=NUMBER ...]"
    folders, options = _read_words(usage, words, own, more=THRESHOLD_NAMES)
    _check_format(options["format"], configuration.FORMATS)
    if options["save"] not in ("true", "false"):
        raise unknown("save", options["save"], ("true", "false"))
    thresholds = parse_thresholds({k: v for k, v in options.items() if k not in own})
    found = rejudge(folders[0], thresholds, save=options["save"] == "true")
    _print_answer(found, options["format"])
    return OK if found.num_judged else NOT_OK


def _compare(words: Sequence[str]) -> int:
    folders, options = _read_words(
        "compare A B", words, {"out": "", "format": "text"}, num_folders=2
    )
    _check_format(options["format"], configuration.FORMATS)
    from stabsweep.comparison import compare
    from stabsweep.result import load

    found = compare(load(folders[0]), load(folders[1]))
    paths = found.save(options["out"]) if options["out"] else []
    _print_answer(found, options["format"])
    if options["format"] == "text":
        drawn = " ".join(map(str, paths)) or "none; out=DIR draws compare.png and compare.svg"
        print(f"{'Picture':9}{drawn}")
    return OK if found.can_tell else NOT_OK


def _curvature(words: Sequence[str]) -> int:
    own = {"trial": "", "points": "", "progress": "auto", "format": "text"}
    (folder,), options = _read_words("curvature DIR", words, own)
    _check_format(options["format"], configuration.FORMATS)
    trial, points = (_whole(key, options[key]) for key in ("trial", "points"))
    from stabsweep.result import load
    from stabsweep.sharpening import NUM_POINTS, find_sharpening

    found = find_sharpening(
        load(folder), trial, num_points=points or NUM_POINTS, watcher=options["progress"]
    )
    paths = found.save(folder)
    _print_answer(found, options["format"])
    if options["format"] == "text":
        print(f"{'Files':9}{folder}/ {' '.join(path.name for path in paths)}")
    return OK


def _whole(key: str, text: str) -> int | None:
    """The whole number that was typed; None where nothing was."""
    try:
        return int(text) if text else None
    except ValueError:
        raise BadInput(f"{key}={text} is not a whole number") from None


def _verify(words: Sequence[str]) -> int:
    _, options = _read_words("verify", words, {"format": "text"}, num_folders=0)
    _check_format(options["format"], configuration.FORMATS)
    from stabsweep.oracles import ORACLES, as_table, measure

    found = []
    for oracle in ORACLES:
        print(f"\rstabsweep: {oracle.name} ...", end="\033[K", file=sys.stderr, flush=True)
        found.append(measure(oracle))
    print("\r\033[K", end="", file=sys.stderr)
    if options["format"] == "text":
        print(as_table(found))
    else:
        _print_plain([row.as_dict() for row in found], options["format"])
    return OK if all(row.ok for row in found) else NOT_OK


_OF_SWEEPS = {
    "space", "sampler", "pruner", "num_trials", "extend", "confirm", "stress", "curvature", "hydra"
}  # fmt: skip
"""What says how rates are searched for: a check tries four."""


def _check(words: Sequence[str]) -> int:
    usage = "check lr=RATE [KEY=VALUE ...] [out=DIR]"
    if "-h" in words or "--help" in words:
        print(f"stabsweep {usage}")
        return OK
    own, rest = {"lr": "", "out": ""}, []
    for word in words:
        key, equals, value = word.partition("=")
        first = key.lstrip("+~").partition(".")[0]
        if not equals or (first in own and key != first):
            raise BadInput(f"usage: stabsweep {usage}, got {word}")
        if first in _OF_SWEEPS:
            raise BadInput(f"{key} has no effect on a check, which tries four rates: leave it away")
        if key in own:
            own[key] = value
        else:
            rest.append(word)
    try:
        lr = float(own["lr"])
    except ValueError:
        raise BadInput(
            f"lr={own['lr']!r} is not a number: give lr=RATE, the one to be used"
        ) from None
    config = configuration.compose(rest)
    arguments = configuration.read_arguments(config)
    if not any(word.startswith("seeds=") for word in rest):
        del arguments["seeds"]
    _check_format(config.format, configuration.FORMATS)
    from stabsweep.check import check

    found = check(lr, arguments, own["out"] or None, config.progress)
    _print_answer(found, config.format)
    interrupted = found.result is not None and found.result.interrupted
    return INTERRUPTED if interrupted else found.exit_code


VERBS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "check": _check,
    "compare": _compare,
    "curvature": _curvature,
    "judge": _judge,
    "pick": _pick,
    "report": _report,
    "resume": _resume,
    "verify": _verify,
}


def _read_words(
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


def _check_format(given: str, allowed: Sequence[str]) -> None:
    if given not in allowed:
        raise unknown("format", given, allowed)


def _print_result(result: Any, form: str) -> None:
    if form == "text":
        print(result.summary())
        if result.interrupted:
            print(f"\nInterrupted. Go on with: stabsweep resume {result.folder}")
    else:
        _print_plain(result.as_dict(), form)


def _print_answer(answer: Any, form: str) -> None:
    if form == "text":
        print(answer.summary())
    else:
        _print_plain(answer.as_dict(), form)


def _print_plain(values: Any, form: str) -> None:
    if form == "json":
        print(json.dumps(values, indent=2, allow_nan=False))
    else:
        print(yaml.safe_dump(values, sort_keys=False, allow_unicode=True), end="")


def _shown(folder: Path) -> Path:
    """The folder as seen from here: shorter to read and to type."""
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder


def _existing_folders(words: Sequence[str]) -> set[Path]:
    """The folders on the way to the results that are there before Hydra makes them."""
    given = [word.split("=", 1)[1] for word in words if word.startswith("hydra.")]
    ways = [Path(path).absolute() for path in ("results", "results/multirun", *given)]
    return {folder for way in ways for folder in (way, *way.parents) if folder.exists()}


def _remove_empty(folder: Path, existing: Collection[Path]) -> None:
    """Removes the folders that Hydra made for a run that did not begin."""
    folder = folder.absolute()
    try:
        while folder not in existing:
            folder.rmdir()
            folder = folder.parent
    except OSError:
        # It holds something, so it stays.
        return
