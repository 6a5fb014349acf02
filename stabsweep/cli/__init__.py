"""The command line: a verb and its arguments, or a sweep with Hydra overrides."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from stabsweep import config as configuration
from stabsweep.cli import _check, _results, _sweep, _train
from stabsweep.cli._words import BAD_INPUT, INTERRUPTED, OK
from stabsweep.errors import BadInput, unknown

VERBS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "check": _check.check,
    "compare": _results.compare,
    "curvature": _results.curvature,
    "judge": _results.judge,
    "pick": _results.pick,
    "report": _results.report,
    "resume": _results.resume,
    "train": _train.train,
    "verify": _check.verify,
}
"""Verb -> what runs the words after it, and returns the exit code."""


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
        for word in words:
            if not word.startswith("-") and "=" not in word and not word.startswith("~"):
                raise unknown("verb", word, [*VERBS, "KEY=VALUE"])
        return _sweep.sweep(words)
    except BrokenPipeError:
        # Whoever read the output, `head` say, has seen enough; Python would complain once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except (BadInput, HydraException, OmegaConfBaseException, OSError) as error:
        print(f"stabsweep: {configuration.one_line(error)}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("stabsweep: interrupted", file=sys.stderr)
        return INTERRUPTED
