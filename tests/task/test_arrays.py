from __future__ import annotations

import re

import numpy as np
import pytest
import torch

import stabsweep
from stabsweep.errors import BadInput
from stabsweep.signature import Signature
from stabsweep.task.arrays import Arrays
from tests.test_api import Witness

N = 12
RNG = np.random.default_rng(0)
FLAT, STEPS, IMAGES = (
    RNG.normal(size=(N, 4)),
    RNG.normal(size=(N, 5, 3)),
    RNG.normal(2, 3, (N, 1, 8, 8)),
)
TOKENS = RNG.integers(0, 7, (N, 5))
TOKENS[0, 0] = 6
LABELS = np.arange(N) % 3


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data.npz"


def arrays(path, x, y, **how):
    np.savez(path, x=x, y=y)
    return Arrays(str(path), **how)


KINDS = [
    # x, y, kind; kind of inputs, numbers of an input, outputs, length, a step?
    (FLAT, LABELS, None, ("vector", 4, 3, 1, False)),
    (FLAT[:, 0], LABELS, None, ("vector", 1, 3, 1, False)),
    (FLAT > 0, LABELS.astype(np.uint8), None, ("vector", 4, 3, 1, False)),
    (FLAT, LABELS[:, None], None, ("vector", 4, 3, 1, False)),
    (FLAT, LABELS > 0, None, ("vector", 4, 2, 1, False)),
    (FLAT, LABELS.astype(float), "classification", ("vector", 4, 3, 1, False)),
    (FLAT, FLAT[:, 0], None, ("vector", 4, 1, 1, False)),
    (FLAT, FLAT[:, :2], None, ("vector", 4, 2, 1, False)),
    (FLAT, LABELS, "regression", ("vector", 4, 1, 1, False)),
    (FLAT, TOKENS, "regression", ("vector", 4, 5, 1, False)),
    (STEPS, LABELS, None, ("sequence", 3, 3, 5, False)),
    (STEPS, FLAT, None, ("sequence", 3, 4, 5, False)),
    (STEPS, TOKENS, None, ("sequence", 3, 7, 5, True)),
    (STEPS, STEPS[..., :2], None, ("sequence", 3, 2, 5, True)),
    (TOKENS, LABELS, None, ("tokens", 7, 3, 5, False)),
    (TOKENS.astype(np.uint16), TOKENS, None, ("tokens", 7, 7, 5, True)),
    (TOKENS, STEPS, None, ("tokens", 7, 3, 5, True)),
    (IMAGES, LABELS, None, ("arrays", 64, 3, 1, False)),
    ((IMAGES[:, 0] > 0).astype(np.uint8), LABELS, None, ("sequence", 8, 3, 8, False)),
    (IMAGES.astype(np.float16), FLAT[:, 0].astype(np.float16), None, ("arrays", 64, 1, 1, False)),
    (IMAGES.clip(0).astype(np.uint8), LABELS, None, ("arrays", 64, 3, 1, False)),
]


@pytest.mark.parametrize("x, y, kind, expected", KINDS, ids=range(len(KINDS)))
def test_what_arrays_are_follows_from_type_and_shape(path, x, y, kind, expected):
    task = arrays(path, x, y, kind=kind)
    assert task.signature == Signature(*expected)
    assert task.num_examples == N
    inputs, targets = task.batch(torch.arange(N).view(3, 4))
    assert inputs.dtype == (torch.int64 if expected[0] == "tokens" else torch.float32)
    shape = (3, 4, *(x.shape[1:] or (1,)))
    assert inputs.shape == shape
    np.testing.assert_array_equal(inputs.reshape(N, -1), x.reshape(N, -1).astype(np.float32))
    np.testing.assert_array_equal(targets.reshape(N, -1), y.reshape(N, -1).astype(np.float32))
    is_classification = kind == "classification" or (kind is None and y.dtype.kind != "f")
    assert targets.dtype == (torch.int64 if is_classification else torch.float32)
    # The best blind outputs have the blind loss.
    if is_classification:
        share = np.bincount(y.reshape(-1).astype(int)) / y.size
        outputs = torch.from_numpy(np.log(np.maximum(share, 1e-30))).expand(*task.targets.shape, -1)
    else:
        outputs = task.targets.flatten(0, -2).mean(0).expand_as(task.targets)
    found = task.criterion(outputs, task.targets).item()
    assert found == pytest.approx(task.blind_loss, rel=1e-5)
    assert f"-> {expected[0]}" in task.note and "\n" not in task.note


def test_what_was_made_of_a_file_and_its_scale_is_said(path):
    rows = np.concatenate([np.full((2, 4), 99.0), np.full((2, 4), 101.0)])
    assert arrays(path, rows, np.array([0, 1, 0, 1])).note == (
        "task arrays: 4 examples; x (4) float64 -> vector, mean 100.00, deviation 1.00; "
        "y int64 -> classification of 2, blind loss 0.693"
    )
    assert arrays(path, TOKENS, TOKENS).note == (
        "task arrays: 12 examples; x (5) int64 -> tokens, a vocabulary of 7; y (5) int64 -> "
        f"classification of 7 a step, blind loss {arrays(path, TOKENS, TOKENS).blind_loss:.3g}"
    )


def test_inputs_are_used_as_they_are(path):
    task = arrays(path, FLAT * 1000, LABELS)
    torch.testing.assert_close(task.inputs, torch.from_numpy(FLAT * 1000).float(), rtol=0, atol=0)


def holed(array, value):
    array = array.astype(float).copy()
    array[3, 1] = array[5, 0] = value
    return array


REFUSED = [
    (FLAT, LABELS[:-1], {}, "x has 12 rows and y 11: give one of each an example"),
    (FLAT[:0], LABELS[:0], {}, r"is empty \(x \(0, 4\), y \(0,\)\)"),
    (FLAT[:, :0], LABELS, {}, "is empty"),
    (np.float64(3), LABELS, {}, r"x is float64 \(\): give numbers, one row an example"),
    (FLAT.astype(str), LABELS, {}, "x is <U.*: give numbers"),
    (FLAT + 1j, LABELS, {}, "x is complex128"),
    (
        holed(FLAT, np.nan),
        LABELS,
        {},
        "x holds 2 numbers that are not finite .* row 3: a problem of",
    ),
    (holed(FLAT, 1e300), LABELS, {}, r"x holds 2 numbers that are not finite \(in float32\)"),
    (FLAT, holed(FLAT, np.inf), {}, "y holds 2 numbers that are not finite .* in row 3: "),
    (FLAT, holed(FLAT, np.nan)[:, 1], {"kind": "classification"}, "y holds 1 numbers .* row 3"),
    (TOKENS - 1, LABELS, {}, r"x holds whole numbers, so tokens, but -1 in row \d+: number tokens"),
    (TOKENS[:, 0], LABELS, {}, r"x is int64 \(12,\), but whole numbers are tokens \(N, L\): store"),
    (np.ones((N, 2, 2), int), LABELS, {}, r"x is int64 \(12, 2, 2\), but whole numbers are tokens"),
    (
        FLAT,
        LABELS - 1,
        {},
        r"labels y go down to -1, first in row 0: number classes from 0, or task",
    ),
    (FLAT, LABELS * 0 + 2, {}, "every label y is 2: there is nothing to tell apart"),
    (
        FLAT,
        LABELS + 5000,
        {},
        "labels y go up to 5002, but there are 12: number classes from 0, or",
    ),
    (
        FLAT,
        LABELS + 0.5,
        {"kind": "classification"},
        "y is to be labels, but row 0 has 0.5: give who",
    ),
    (
        FLAT,
        TOKENS,
        {},
        r"labels y are \(12, 5\): give \(N,\), one an example, or task.kind=regress",
    ),
    (STEPS, TOKENS[:, :4], {}, r"labels y are \(12, 4\): .*, or \(N, 5\) for one a step, or task"),
    (
        STEPS,
        STEPS[:, :4],
        {},
        r"values y are \(12, 4, 3\): give \(N,\) or \(N, O\), or \(N, 5, O\) a",
    ),
    (FLAT, IMAGES, {}, r"values y are .*: give \(N,\) or \(N, O\); other shapes need .* task=user"),
    (FLAT, LABELS * 0.0, {}, "every row of y is the same: there is nothing to learn"),
    (
        FLAT,
        LABELS,
        {"kind": "classfication"},
        "task.kind='classfication' is not known: .*mean classi",
    ),
]


@pytest.mark.parametrize("x, y, how, message", REFUSED, ids=[row[-1][:30] for row in REFUSED])
def test_what_cannot_be_learned_gets_one_line_with_the_cure(path, x, y, how, message):
    with pytest.raises(BadInput, match=message) as refusal:
        arrays(path, x, y, **how)
    line = str(refusal.value)
    assert "\n" not in line
    assert how or line.startswith(f"task.path={path}")


def test_a_file_that_cannot_be_used_is_named_with_the_reason(tmp_path):
    cure = r"give one that numpy\.savez"
    cases = {"none.npz": "cannot be read (No such file", ".": "cannot be read (Is a directory"}
    (tmp_path / "text.npz").write_text("x, y")
    (tmp_path / "empty.npz").write_bytes(b"")
    np.save(tmp_path / "one.npy", FLAT)
    np.savez(tmp_path / "other.npz", a=FLAT, y=LABELS)
    np.savez(tmp_path / "whole.npz", x=FLAT, y=LABELS)
    np.savez(tmp_path / "objects.npz", x=np.array([1, "a"], object), y=np.arange(2))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:-30])
    cases |= {
        "text.npz": "cannot be read (it is no .npz file)",
        "empty.npz": "cannot be read (it is no .npz file)",
        "cut.npz": "cannot be read (it is no .npz file)",
        "one.npy": "is one array, not an .npz file",
        "other.npz": "has no x but a, y",
    }
    for name, reason in cases.items():
        path = tmp_path / name
        with pytest.raises(BadInput, match=re.escape(f"task.path={path} {reason}") + ".*: " + cure):
            Arrays(str(path))
    with pytest.raises(BadInput, match="objects.npz: x cannot be read, it holds objects or is dam"):
        Arrays(str(tmp_path / "objects.npz"))
    with pytest.raises(
        BadInput, match=r"task=arrays needs task\.path=FILE\.npz, with arrays x and"
    ):
        Arrays()
    with pytest.raises(BadInput, match="task.path=3 cannot be read"):
        Arrays(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "y, outputs", [(LABELS, (N, 4)), (LABELS, (N,)), (FLAT, (N,)), (FLAT, (4,))]
)
def test_outputs_of_another_shape_are_refused(path, y, outputs):
    task = arrays(path, FLAT, y)
    with pytest.raises(ValueError, match=r"outputs \(.*\) should be \(12, \d\)"):
        task.criterion(torch.zeros(outputs), task.targets)


def test_the_digits_from_a_file_are_those_of_the_task(path):
    from stabsweep.task import Digits

    digits, lr = Digits(), {"lr": [0.01, 0.1]}
    how = {"horizon": 20, "num_trials": 4, "sampler": "grid"}
    np.savez(path, x=digits.inputs.numpy(), y=digits.labels_N.numpy())
    model, seen = {"name": "mlp", "width": 8, "depth": 2}, Witness()
    given = {"name": "arrays", "path": str(path)}
    found = stabsweep.sweep(model, given, lr, "sgd", watcher=seen, **how)
    expected = stabsweep.sweep(model, "digits", lr, "sgd", watcher="off", **how)
    losses = [[r.final_loss for r in result.region.records] for result in (found, expected)]
    assert losses[0] == losses[1]
    assert seen.notes[0].startswith("task arrays: 1,797 examples; x (64) float32 -> vector, mean ")
    assert seen.notes[1].startswith("engine cohort")
