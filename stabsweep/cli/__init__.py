"""The command line: a verb and its arguments, or a sweep with Hydra overrides."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from stabsweep.cli._words import BAD_INPUT, INTERRUPTED, OK
from stabsweep.errors import BadInput, unknown

VERBS: Mapping[str, str] = {
    "check": "_check",
    "compare": "_results",
    "curvature": "_results",
    "env": "_env",
    "judge": "_results",
    "pick": "_results",
    "replay": "_results",
    "report": "_results",
    "resume": "_results",
    "train": "_train",
    "verify": "_check",
    "watch": "_results",
}
"""Verb -> the file of this folder whose function of that name runs the words after it, and returns
the exit code. Loaded when it is asked for: `env` must answer where NumPy does not load."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code.

    Args:
        argv: what was typed after the name of the program; None reads `sys.argv`.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    verb = words.pop(0) if words and words[0] in VERBS else ""
    try:
        if verb:
            return getattr(import_module(f"stabsweep.cli.{VERBS[verb]}"), verb)(words)
        for word in words:
            if not word.startswith("-") and "=" not in word and not word.startswith("~"):
                raise unknown("verb", word, [*VERBS, "KEY=VALUE"])
        from stabsweep.cli import _sweep

        return _sweep.sweep(words)
    except BrokenPipeError:
        # Whoever read the output, `head` say, has seen enough; Python would complain once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except BadInput as error:
        print(f"stabsweep: {error}", file=sys.stderr)
        return BAD_INPUT
    except (HydraException, OmegaConfBaseException, OSError) as error:
        from stabsweep import config as configuration

        print(f"stabsweep: {configuration.one_line(error)}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("stabsweep: interrupted", file=sys.stderr)
        return INTERRUPTED
