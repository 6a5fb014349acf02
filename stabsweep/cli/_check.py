"""The verbs that train: the test of one rate, and of this machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from stabsweep import config as configuration
from stabsweep.cli._words import (
    FORMATS,
    INTERRUPTED,
    NOT_OK,
    OK,
    check_format,
    print_answer,
    print_plain,
    read_words,
)
from stabsweep.errors import BadInput


def verify(words: Sequence[str]) -> int:
    """Holds this machine against known edges."""
    _, options = read_words("verify", words, {"format": "text"}, num_folders=0)
    check_format(options["format"], FORMATS)
    from stabsweep.oracles import ORACLES, as_table, measure

    found = []
    for oracle in ORACLES:
        print(f"\rstabsweep: {oracle.name} ...", end="\033[K", file=sys.stderr, flush=True)
        found.append(measure(oracle))
    print("\r\033[K", end="", file=sys.stderr)
    if options["format"] == "text":
        print(as_table(found))
    else:
        print_plain([row.as_dict() for row in found], options["format"])
    return OK if all(row.ok for row in found) else NOT_OK


_OF_SWEEPS = {
    "space", "sampler", "pruner", "num_trials", "extend", "confirm", "stress", "curvature", "hydra"
}  # fmt: skip
"""What says how rates are searched for: a check tries four."""


def check(words: Sequence[str]) -> int:
    """Tests one rate, and a few above it."""
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
    check_format(config.format, FORMATS)
    from stabsweep import check as checking

    found = checking.check(lr, arguments, own["out"] or None, config.progress)
    print_answer(found, config.format)
    interrupted = found.result is not None and found.result.interrupted
    return INTERRUPTED if interrupted else found.exit_code
