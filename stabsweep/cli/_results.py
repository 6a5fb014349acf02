"""The verbs that read a folder of results."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stabsweep.cli._words import (
    FORMATS,
    INTERRUPTED,
    NOT_OK,
    OK,
    check_format,
    names,
    print_answer,
    print_plain,
    print_result,
    read_words,
    whole,
)
from stabsweep.errors import BadInput, unknown

_RESUME = {
    "progress": "auto", "format": "text", "storage": "", "log": "", "executor": "auto",
    "workers": "",
}  # fmt: skip


def resume(words: Sequence[str]) -> int:
    """Goes on with a sweep that was interrupted."""
    (folder,), options = read_words("resume DIR", words, _RESUME)
    check_format(options["format"], FORMATS)
    from stabsweep.api import resume

    workers = whole("workers", options["workers"])
    storage = options["storage"] or None
    log = names(options["log"])
    result = resume(folder, options["progress"], storage, options["executor"], workers, log)
    print_result(result, options["format"])
    return INTERRUPTED if result.interrupted else OK if result.pick.is_ok else NOT_OK


def report(words: Sequence[str]) -> int:
    """Draws the pictures and the page of a sweep again, or of a guarded run."""
    own = {"figures": "", "width": "", "format": "text", "log": ""}
    (folder,), options = read_words("report DIR", words, own)
    check_format(options["format"], FORMATS)
    if options["figures"] not in ("", "paper"):
        raise unknown("figures", options["figures"], ("paper",))
    if options["width"] and not options["figures"]:
        raise BadInput(f"width={options['width']} is of figures=paper: give both, or neither")
    from stabsweep.runlog import STEPS, is_run
    from stabsweep.store import CONFIG, RECORDS

    if is_run(folder):
        if options["figures"]:
            raise BadInput(f"figures=paper draws a sweep; {folder} is a guarded run")
        if options["log"]:
            raise BadInput(f"log={options['log']} is for sweeps, and {folder} is a guarded run's")
        from stabsweep.watched import load_run

        watched = load_run(folder)
        watched.save_report()
        print_answer(watched, options["format"])
        return OK if watched.is_ok else NOT_OK
    if not folder.is_dir():
        raise BadInput(f"{folder} is no folder: give that of a sweep or of a guarded run")
    if not (folder / CONFIG).exists() and not (folder / RECORDS).exists():
        raise BadInput(
            f"{folder} is no result folder: it has neither the {CONFIG} of a sweep nor the "
            f"{STEPS} of a guarded run"
        )
    from stabsweep import log
    from stabsweep.result import load

    dashboards = log.check(names(options["log"]), folder)
    result = load(folder)
    if options["figures"]:
        # First, since it may not like the width.
        paths = result.save_figures(options["width"] or "single")
    result.save_report()
    for line in log.write(dashboards, result):
        print(f"stabsweep: {line}", file=sys.stderr)
    print_result(result, options["format"])
    if options["figures"] and options["format"] == "text":
        drawn = " ".join(dict.fromkeys(path.stem for path in paths[:-1]))
        print(f"{'Figures':9}{paths[0].parent}/ {drawn} (pdf, svg, png) {paths[-1].name}")
    return OK if result.pick.is_ok else NOT_OK


def pick(words: Sequence[str]) -> int:
    """Prints the pick of a sweep."""
    (folder,), options = read_words("pick DIR", words, {"format": "text"})
    check_format(options["format"], (*FORMATS, "overrides", "flags"))
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
        print_plain(pick.as_dict(), options["format"])
    return OK if pick.is_ok else NOT_OK


def watch(words: Sequence[str]) -> int:
    """Follows a sweep that runs elsewhere until it has ended; Ctrl-C ends the watching alone."""
    own = {"progress": "auto", "wait": "0", "patience": "", "format": "text"}
    (folder,), options = read_words("watch DIR", words, own)
    check_format(options["format"], FORMATS)
    wait, patience = (whole(key, options[key]) for key in ("wait", "patience"))
    for key, seconds in (("wait", wait), ("patience", patience)):
        if seconds is not None and seconds < 0:
            raise BadInput(f"{key}={seconds} is not allowed: give seconds, 0 or more")
    limit = math.inf if patience is None else patience
    try:
        from stabsweep.following import follow

        result = follow(folder, options["progress"], wait or 0, limit)
    except KeyboardInterrupt:
        print("stabsweep: watched no longer; the sweep itself goes on", file=sys.stderr)
        return INTERRUPTED
    if isinstance(result, str):
        print(f"stabsweep: watched no longer: {result}", file=sys.stderr)
        return NOT_OK
    if result.interrupted and options["format"] == "text":
        done, planned = len(result.region.records), result.config["num_planned"]
        print(f"interrupted after {done} of {planned}; resume with: stabsweep resume {folder}")
    else:
        print_result(result, options["format"])
    return INTERRUPTED if result.interrupted else OK if result.pick.is_ok else NOT_OK


def judge(words: Sequence[str]) -> int:
    """Judges the traces of a sweep again."""
    from stabsweep.rejudging import THRESHOLD_NAMES, parse_thresholds, rejudge

    own = {"save": "false", "format": "text"}
    usage = "judge DIR [THRESHOLD=NUMBER ...]"
    folders, options = read_words(usage, words, own, more=THRESHOLD_NAMES)
    check_format(options["format"], FORMATS)
    if options["save"] not in ("true", "false"):
        raise unknown("save", options["save"], ("true", "false"))
    thresholds = parse_thresholds({k: v for k, v in options.items() if k not in own})
    found = rejudge(folders[0], thresholds, save=options["save"] == "true")
    print_answer(found, options["format"])
    return OK if found.num_judged else NOT_OK


def compare(words: Sequence[str]) -> int:
    """Sets two sweeps side by side."""
    folders, options = read_words(
        "compare A B", words, {"out": "", "format": "text"}, num_folders=2
    )
    check_format(options["format"], FORMATS)
    from stabsweep.comparison import compare
    from stabsweep.result import load

    found = compare(load(folders[0]), load(folders[1]))
    paths = found.save(options["out"]) if options["out"] else []
    print_answer(found, options["format"])
    if options["format"] == "text":
        names = "compare.html, compare.png and compare.svg"
        written = " ".join(map(str, paths)) or f"none; out=DIR writes {names}"
        print(f"{'Files':9}{written}")
    return OK if found.can_tell else NOT_OK


def curvature(words: Sequence[str]) -> int:
    """Measures the sharpness along one trial."""
    own = {"trial": "", "points": "", "progress": "auto", "format": "text"}
    (folder,), options = read_words("curvature DIR", words, own)
    check_format(options["format"], FORMATS)
    trial, points = (whole(key, options[key]) for key in ("trial", "points"))
    from stabsweep.result import load
    from stabsweep.sharpening import NUM_POINTS, find_sharpening

    found = find_sharpening(
        load(folder), trial, num_points=points or NUM_POINTS, watcher=options["progress"]
    )
    return _saved(found, folder, options["format"])


def replay(words: Sequence[str]) -> int:
    """Trains one trial again and finds where it broke first."""
    own = {"trial": "", "steps": "", "progress": "auto", "format": "text"}
    (folder,), options = read_words("replay DIR", words, own)
    check_format(options["format"], FORMATS)
    trial, steps = (whole(key, options[key]) for key in ("trial", "steps"))
    from stabsweep.replay import find_replay
    from stabsweep.result import load

    found = find_replay(load(folder), trial, steps=steps, watcher=options["progress"])
    return _saved(found, folder, options["format"])


def _saved(found: Any, folder: Path, form: str) -> int:
    """Saves an answer into the folder of its sweep, and prints it."""
    paths = found.save(folder)
    print_answer(found, form)
    if form == "text":
        print(f"{'Files':9}{folder}/ {' '.join(path.name for path in paths)}")
    return OK
