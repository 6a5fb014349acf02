"""Numbers that stay on the device until the next transfer: fewer waits, the same lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from stabsweep.guard.entries import Entries
from tests.guard.runs import Training, lines_of, same, weights


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts what makes the host wait: each `tolist`, `item` and conversion of a tensor."""
    waits = [0]

    def counting(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            waits[0] += 1
            return real(*args)

        return call

    for name in ("tolist", "item", "__float__", "__bool__", "__int__"):
        monkeypatch.setattr(torch.Tensor, name, counting(getattr(torch.Tensor, name)))
    return waits


def run(folder: Path, is_late: bool, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Training:
    training = Training(torch.optim.SGD, log=folder, clip_norm=None, **more)
    attempts = training.guard._attempts
    # As on a GPU, where numbers wait for the next transfer.
    monkeypatch.setattr(attempts, "_is_late", is_late)
    monkeypatch.setattr(attempts.entries, "_is_late", is_late)
    return training


@pytest.mark.parametrize("check_every", [1, 5])
def test_lines_are_the_same_whenever_their_numbers_come(
    check_every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    for name in ("now", "late"):
        training = run(
            tmp_path / name,
            name == "late",
            monkeypatch,
            check_every=check_every,
            policy="warn",
            watch_every=3,
        )
        training.run(20)
        training.guard.close()
        runs.append(training)
    assert same(*(weights(training.net) for training in runs))
    now, late = (lines_of(tmp_path / name) for name in ("now", "late"))
    assert len(now) == 20
    for one, other in zip(now, late, strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}


@pytest.mark.parametrize(("check_every", "expected"), [(1, 20), (10, 2)])
def test_the_host_waits_once_a_check(
    check_every: int, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted on the CPU, with numbers kept back as on a GPU; close looks and lines add none."""
    more = {"check_every": check_every, "policy": "warn", "watch_every": 4}
    training = run(tmp_path, True, monkeypatch, **more)
    waits = counted(monkeypatch)
    training.run(20)
    assert waits[0] == expected


def test_nothing_is_fetched_where_nothing_waits() -> None:
    written: list[dict[str, Any]] = []
    entries = Entries(lambda line, _: written.append(line), is_late=True)
    assert entries.fetch() == []
    assert entries.fetch(torch.tensor([1.0, 2.0])) == [1.0, 2.0]
    assert not written
