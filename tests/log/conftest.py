"""A sweep with every kind of end, the last of them not finite; each test gets a copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import stabsweep

GIVEN = {
    "model": {"name": "mlp", "width": 8, "depth": 2},
    "task": "digits",
    "space": {"lr": {"low": 1e-3, "high": 1e6}},
    "optimizer": "sgd",
    "horizon": 40,
    "num_trials": 20,
    "seeds": 2,
    "sampler": "grid",
    "pruner": "none",
    "extend": False,
    "confirm": False,
    "stress": False,
    "curvature": False,
    "device": "cpu",
    "watcher": "off",
}


@pytest.fixture(scope="session")
def swept(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("swept") / "run"
    stabsweep.sweep(**GIVEN, folder=folder)
    return folder


@pytest.fixture
def folder(swept, tmp_path) -> Path:
    return Path(shutil.copytree(swept, tmp_path / "a sweep"))
