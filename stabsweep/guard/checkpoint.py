"""Checkpoints that can be trusted: verified finite, whole or not there at all, the last few kept.

A file is written under another name, brought to the disk, and renamed: a process that is killed at
any moment leaves the checkpoints before it as they were. It is read with `weights_only`, so that a
file from elsewhere cannot run code.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import keystr, tree_flatten_with_path

from stabsweep.errors import BadInput
from stabsweep.guard.finding import BadTensor, find_bad

FORMAT = 1
"""Version of the layout; raised when a key changes its meaning."""

_NAME = re.compile(r"step-(\d+)\.pt")


class Checkpoints:
    """The checkpoints of a run in one folder.

    Args:
        folder: made with the first one.
        keep: how many of the last ones are kept, at least 1.
    """

    def __init__(self, folder: Path, keep: int = 3) -> None:
        self.folder = folder
        self.keep = keep

    def paths(self) -> list[Path]:
        """The files that are there, by rising step."""
        found = [path for path in self.folder.glob("step-*.pt") if _NAME.fullmatch(path.name)]
        return sorted(found, key=step_of)

    def save(self, state: Mapping[str, Any]) -> Path:
        """Writes a state, which has a `step`; the oldest files beyond `keep` are removed.

        Raises:
            OSError, RuntimeError: it cannot be written; the others are as they were.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"step-{state['step']:08d}.pt"
        part = path.with_name(f".{path.name}.part")
        try:
            with open(part, "wb") as file:
                torch.save({"format": FORMAT, **state}, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        except (OSError, RuntimeError):
            # It would take the room that is missing.
            part.unlink(missing_ok=True)
            raise
        _sync(self.folder)
        for old in [p for p in self.paths() if p != path][: -self.keep + 1 or None]:
            old.unlink(missing_ok=True)
        for torn in self.folder.glob(".step-*.pt.part"):
            torn.unlink(missing_ok=True)
        return path

    def load(self, note: Callable[[str], None] = lambda _: None) -> dict[str, Any] | None:
        """The state of the last checkpoint that can be read; None when there is none.

        Args:
            note: told of every file that cannot be read, and is passed over.
        """
        for path in reversed(self.paths()):
            try:
                state = torch.load(path, map_location="cpu", weights_only=True)
            except Exception as error:  # torn, or not a checkpoint: torch raises anything
                first = (str(error).splitlines() or [type(error).__name__])[0]
                note(f"checkpoint {path.name} cannot be read and is passed over ({first[:120]})")
                continue
            if not isinstance(state, dict) or state.get("format") != FORMAT:
                note(f"checkpoint {path.name} has another format and is passed over")
                continue
            return state
        return None

    def remove_after(self, step: int) -> None:
        """Removes the checkpoints of later steps: training goes on from before them."""
        for path in self.paths():
            if step_of(path) > step:
                path.unlink(missing_ok=True)


def step_of(path: Path) -> int:
    """The step that a checkpoint was written at."""
    found = _NAME.fullmatch(path.name)
    return int(found[1]) if found else -1


def find_unfit(states: Mapping[str, Any], except_for: Iterable[str] = ()) -> BadTensor | None:
    """What of some state dictionaries is not finite, the first; None when all can be kept.

    Args:
        states: name -> state dictionary.
        except_for: places that were not finite from the start, such as the -inf of a mask.
    """
    allowed = set(except_for)
    for name, tensor in tensors_of(states):
        if name not in allowed and (bad := find_bad(name, tensor)) is not None:
            return bad
    return None


def tensors_of(states: Mapping[str, Any]) -> list[tuple[str, Tensor]]:
    """The tensors of state dictionaries with their places."""
    return [
        (place, leaf)
        for name, state in states.items()
        for path, leaf in tree_flatten_with_path(state)[0]
        if isinstance(leaf, Tensor)
        for place in [name + keystr(path)]
    ]


def generator_states() -> dict[str, Any]:
    """The states of all that draws random numbers: torch, its GPUs, Python, NumPy."""
    version, words, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    state = {
        "torch": torch.get_rng_state(),
        "python": [version, list(words), gauss],
        # As a tensor: `weights_only` knows no arrays.
        "numpy": [
            str(kind),
            torch.from_numpy(np.asarray(keys, np.int64)),
            position,
            has_gauss,
            cached,
        ],
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def restore_generators(state: Mapping[str, Any]) -> None:
    """Puts back what `generator_states` returned; GPUs that are not here are left out."""
    torch.set_rng_state(state["torch"])
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"][: torch.cuda.device_count()])


def load_into(target: Any, state: Any, what: str) -> None:
    """Gives a state back to what it came from.

    Raises:
        BadInput: it does not fit.
    """
    try:
        target.load_state_dict(state)
    except Exception as error:  # every class has its own
        first = " ".join(str(error).split())[:200]
        raise BadInput(
            f"the checkpoint's {what} does not fit this {what} ({first}): build it as it was when "
            "the checkpoint was written"
        ) from error


def _sync(folder: Path) -> None:
    """Brings the names in a folder to the disk, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
