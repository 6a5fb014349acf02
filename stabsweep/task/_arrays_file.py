"""Inputs and targets from the arrays of a file: what they are, and whether they can be learned."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from stabsweep.errors import BadInput

Kind = Literal["vector", "sequence", "tokens", "arrays"]

MAX_UNSEEN = 1000
"""Classes that are believed though there are fewer labels: beyond it they are numbers that are not
labels, such as ids. Chosen by us: no common set has so many classes and so few examples."""


def read_arrays(path: Any) -> tuple[np.ndarray, np.ndarray]:
    """The arrays `x` and `y` of an .npz file.

    Raises:
        BadInput: there is no such file, or it holds something else.
    """
    where = f"task.path={path}"
    save = "give one that numpy.savez('data.npz', x=x, y=y) writes"
    try:
        # Opened here, since numpy leaves a broken file open.
        with Path(path).expanduser().open("rb") as stream:
            file = np.load(stream, allow_pickle=False)
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise BadInput(f"{where} is one array, not an .npz file: {save}")
            arrays = [_array(where, file, name, save) for name in ("x", "y")]
    except BadInput:
        raise
    except (OSError, TypeError, ValueError, EOFError, zipfile.BadZipFile) as error:
        # numpy takes whatever it does not know for a pickle, which says nothing to a reader.
        reason = getattr(error, "strerror", None) or "it is no .npz file"
        raise BadInput(f"{where} cannot be read ({reason}): {save}") from None
    x, y = arrays
    for name, array in (("x", x), ("y", y)):
        if array.dtype.kind not in "biuf" or array.ndim == 0:
            raise BadInput(
                f"{where}: {name} is {array.dtype} {array.shape}: give numbers, one row an example"
            )
    if len(x) != len(y):
        raise BadInput(f"{where}: x has {len(x)} rows and y {len(y)}: give one of each an example")
    if x.size == 0 or y.size == 0:
        raise BadInput(f"{where} is empty (x {x.shape}, y {y.shape}): give examples")
    return x, y


def _array(where: str, file: np.lib.npyio.NpzFile, name: str, save: str) -> np.ndarray:
    if name not in file.files:
        raise BadInput(f"{where} has no {name} but {', '.join(file.files)[:80]}: {save}")
    try:
        return file[name]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        raise BadInput(
            f"{where}: {name} cannot be read, it holds objects or is damaged: give numbers of one "
            "shape"
        ) from None


def inputs_of(where: str, x: np.ndarray) -> tuple[Tensor, Kind]:
    """Inputs as a model reads them, and of which kind they are.

    Args:
        where: where `x` was given, for errors.
        x: numbers, (N, ...).

    Raises:
        BadInput: whole numbers are no tokens, or numbers not finite.
    """
    if x.dtype.kind in "iu" and x.ndim == 2:
        if x.min() < 0:
            row = int((x < 0).any(1).argmax())
            raise BadInput(
                f"{where}: x holds whole numbers, so tokens, but {x.min()} in row {row}: number "
                "tokens from 0, or store numbers as decimals, x.astype('float32')"
            )
        return torch.from_numpy(x.astype(np.int64)), "tokens"
    if x.dtype.kind == "i" or (x.dtype.kind == "u" and x.ndim == 1):
        raise BadInput(
            f"{where}: x is {x.dtype} {x.shape}, but whole numbers are tokens (N, L): store "
            "numbers as decimals, x.astype('float32')"
        )
    inputs = _finite(where, "x", x)
    if inputs.ndim == 1:
        inputs = inputs.unsqueeze(1)
    kinds: dict[int, Kind] = {2: "vector", 3: "sequence"}
    return inputs, kinds.get(inputs.ndim, "arrays")


def labels_of(where: str, y: np.ndarray, length: int | None) -> Tensor:
    """Labels (N,), or (N, L) a step, of int64.

    Args:
        where: where `y` was given, for errors.
        y: numbers, (N, ...).
        length: steps of a sequence; None when there are none.

    Raises:
        BadInput: they are none.
    """
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1 and y.shape[1:] != (length,):
        a_step = f", or (N, {length}) for one a step" if length else ""
        raise BadInput(
            f"{where}: labels y are {y.shape}: give (N,), one an example{a_step}, or "
            "task.kind=regression for numbers"
        )
    if y.dtype.kind == "f":
        y_finite = _finite(where, "y", y).double().numpy()
        broken = y_finite != y_finite.round()
        if broken.any():
            row = _first_row(broken)
            raise BadInput(
                f"{where}: y is to be labels, but row {row} has {y_finite[row]}: give whole "
                "numbers, or take task.kind=classification away"
            )
        y = y_finite
    labels = torch.from_numpy(y.astype(np.int64))
    low, high = int(labels.min()), int(labels.max())
    if low < 0:
        row = _first_row(y < 0)
        raise BadInput(
            f"{where}: labels y go down to {low}, first in row {row}: number classes from 0, or "
            "task.kind=regression for numbers"
        )
    if low == high:
        raise BadInput(f"{where}: every label y is {low}: there is nothing to tell apart")
    if high >= max(labels.numel(), MAX_UNSEEN):
        raise BadInput(
            f"{where}: labels y go up to {high}, but there are {labels.numel()}: number classes "
            "from 0, or task.kind=regression for numbers"
        )
    return labels


def values_of(where: str, y: np.ndarray, length: int | None) -> Tensor:
    """Values to be met, (N, O), or (N, L, O) a step, of float32.

    Args:
        where: where `y` was given, for errors.
        y: numbers, (N, ...).
        length: steps of a sequence; None when there are none.

    Raises:
        BadInput: they are none, or all the same.
    """
    if y.ndim > 3 or (y.ndim == 3 and y.shape[1] != length):
        a_step = f", or (N, {length}, O) a step" if length else ""
        raise BadInput(
            f"{where}: values y are {y.shape}: give (N,) or (N, O){a_step}; other shapes need a "
            "loss of your own, task=user"
        )
    values = _finite(where, "y", y)
    values = values.unsqueeze(1) if values.ndim == 1 else values
    if values.eq(values[:1]).all() and (values.ndim == 2 or variance(values) == 0):
        raise BadInput(f"{where}: every row of y is the same: there is nothing to learn")
    return values


def variance(values: Tensor) -> float:
    """The variance of each output around its mean, over all examples and steps; their mean."""
    return values.double().flatten(0, -2).var(0, correction=0).mean().item()


def _finite(where: str, name: str, array: np.ndarray) -> Tensor:
    """An array as float32, if that is finite."""
    # Beyond the range of float32 a number becomes infinite, which is told below.
    with np.errstate(over="ignore"):
        numbers = array.astype(np.float32)
    wrong = ~np.isfinite(numbers)
    if wrong.any():
        raise BadInput(
            f"{where}: {name} holds {wrong.sum()} numbers that are not finite (in float32), the "
            f"first in row {_first_row(wrong)}: a problem of the data, not of the rate; take them "
            "out"
        )
    return torch.from_numpy(numbers)


def _first_row(wrong: np.ndarray) -> int:
    return int(wrong.reshape(len(wrong), -1).any(1).argmax())
