"""Dashboards: a sweep that has ended, written where other runs are looked at.

Each gets the same: the answer in words, the map, and of some chosen trials the curves, what they
were trained with, the final numbers and the verdict. Our own records are what lasts, so what lies
in a result folder is written anew each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stabsweep.errors import BadInput, unknown
from stabsweep.log import mlflow, tensorboard, wandb
from stabsweep.log._entry import Entry, make_entry
from stabsweep.numerals import plural
from stabsweep.result import Result

LOGS: Mapping[str, Callable[[Entry, Path], str]] = {
    "mlflow": mlflow.write,
    "tensorboard": tensorboard.write,
    "wandb": wandb.write,
}
"""Every choice of `log=`: what writes an entry into a result folder and says how to look at it."""


def check(given: Any, folder: Path | None) -> tuple[str, ...]:
    """The dashboards that were asked for, if they can be had; to be called before anything runs.

    Args:
        given: a name, several, or None.
        folder: where results go.

    Raises:
        BadInput: a name is unknown, its library is not installed, or there is no folder.
    """
    names = (given,) if isinstance(given, str) else tuple(given or ())
    for name in names:
        if name not in LOGS:
            raise unknown("log", name, LOGS)
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise BadInput(
            f"log={','.join(missing)} is not installed: pip install {' '.join(missing)}, or leave "
            "log away"
        )
    if names and folder is None:
        raise BadInput(
            f"log={','.join(names)} is written beside the results: give a folder for them"
        )
    return tuple(dict.fromkeys(names))


def write(names: Sequence[str], result: Result) -> Iterator[str]:
    """Writes a sweep into dashboards; what was written, or why not, a line each.

    One that fails, a server that is away say, takes nothing from the result.

    Args:
        names: as `check` gives them.
        result: has a folder, with its report in it.
    """
    if not names:
        return
    assert result.folder is not None
    entry = make_entry(result)
    chosen = f"{len(entry.trials)} of {plural(entry.num_trials, 'trial')}"
    for name in names:
        yield f"log: writing {chosen} to {name}"
        try:
            where = LOGS[name](entry, result.folder)
        except KeyboardInterrupt:
            again = f"stabsweep report {result.folder} log={','.join(names)}"
            yield f"log: interrupted in {name}; begin again with: {again}"
            return
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            yield (
                f"log: {name} failed ({type(error).__name__}: {lines[0][:200]}); try again with: "
                f"stabsweep report {result.folder} log={name}"
            )
        else:
            yield f"log: {name} has {chosen}: {where}"


__all__ = ["LOGS", "Entry", "check", "make_entry", "write"]
