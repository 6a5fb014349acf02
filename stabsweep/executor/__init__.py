"""Executors: where trials run, all giving the same curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from stabsweep.errors import BadInput, unknown
from stabsweep.executor._base import Executor, MakeSetup, Note
from stabsweep.executor.auto import num_cores, obstacle
from stabsweep.executor.local import Local
from stabsweep.executor.process import Process
from stabsweep.numerals import plural

EXECUTORS = ("auto", "local", "process")
"""Every choice of `executor=`."""


def check(name: str, device: torch.device) -> None:
    """Nothing, if an executor can be had for a device.

    Raises:
        BadInput: the name is unknown, or processes were asked for that cannot be.
    """
    if name not in EXECUTORS:
        raise unknown("executor", name, EXECUTORS)
    reason = obstacle(device)
    if name == "process" and reason:
        raise BadInput(f"executor=process is not possible: {reason}; use executor=auto or local")


def build(
    name: str,
    num_workers: int,
    device: torch.device,
    make_setup: MakeSetup,
    splitting: Sequence[str],
    engine: str,
    cohort_size: int,
    note: Note,
    profile: Path | None = None,
) -> tuple[Executor, str]:
    """An executor, and one line that says which it is; empty where there was no choice.

    Args:
        name: one of `EXECUTORS`.
        num_workers: processes; with `auto` and 1 there are none but this one.
        device: where trials train.
        make_setup: see `Local`, as for all that follow.
        splitting: likewise.
        engine: likewise.
        cohort_size: likewise.
        note: likewise.
        profile: likewise.

    Raises:
        BadInput: see `check`.
    """
    check(name, device)
    given = (make_setup, splitting, engine, cohort_size, note)
    why = "as asked" if name == "local" else obstacle(device)
    count = "1 process" if num_workers == 1 else f"{num_workers} processes"
    if not why and (name == "process" or num_workers > 1):
        try:
            made = Process(*given, num_workers, profile)
        except OSError as error:
            why = f"the system gives no process ({error.strerror})"
        else:
            return made, f"executor: {count}, one thread each"
    if num_workers == 1 or device.type != "cpu":
        return Local(*given, profile), ""
    threads = plural(torch.get_num_threads(), "thread")
    return Local(*given, profile), f"executor: this process, {threads} ({why})"


__all__ = [
    "EXECUTORS",
    "Executor",
    "Local",
    "Note",
    "Process",
    "build",
    "check",
    "num_cores",
    "obstacle",
]
