from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

import stabsweep
from stabsweep.cli import main
from stabsweep.errors import BadInput
from stabsweep.store import read_records
from stabsweep.task import Batches, Digits, build
from tests.test_api import Witness

ROOT = Path(__file__).parents[2]

MINE = '''
import math
import torch
from torch import nn
from torch.nn import functional as F

from stabsweep.task import Task

DRAWN = []

def rows(num_rows=200, noise=0.0):
    x = torch.randn(num_rows, 6)
    DRAWN.append(x[0, 0].item())
    return x, (x + noise * torch.randn(num_rows, 6)).argmax(1)

def loss(model, batch):
    return F.cross_entropy(model(batch["x"]), batch["y"])

def pair(batch_size=20, **args):
    x, y = rows(**args)
    return [{"x": a, "y": b} for a, b in zip(x.split(batch_size), y.split(batch_size))], loss

class Whole:
    blind_loss = math.log(6)
    def __init__(self, batch_size=20):
        self.batches, _ = pair(batch_size)
    def __iter__(self):
        return iter(self.batches)
    def loss(self, model, batch):
        return loss(model, batch)

class Own(Task):
    """The least that a task has."""
    def __init__(self):
        self.x, self.y = rows()
        self.num_examples = len(self.y)
    def batch(self, index):
        return {"x": self.x[index], "y": self.y[index]}
    def loss(self, model, batch):
        return loss(model, batch)

class Uncounted(Own):
    def __init__(self):
        self.x, self.y = rows()

class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Linear(width, 6))
    def forward(self, x):
        return self.layers(x)

def broken():
    raise OSError("no such host\\nand more")

def number():
    return 3

def numbers():
    return [1, 2, 3]
'''


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a module of the user's own, and its name."""
    name = f"mine_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    sys.modules.pop(name, None)


@pytest.mark.parametrize("attribute", ["pair", "Whole", "Own"])
def test_a_target_gives_a_pair_or_an_object_or_a_task(here, attribute):
    task = build("user", target=f"{here}:{attribute}")
    task.read(30)
    assert task.name == "user"
    assert isinstance(task, Batches) == task.is_batched == (attribute != "Own")
    assert (task.blind_loss is None) == (attribute != "Whole")
    batch = task.batch(torch.tensor([[0], [3]]))
    assert batch["x"].shape == ((2, 20, 6) if task.is_batched else (2, 1, 6))
    seen = Witness()
    result = stabsweep.sweep(
        {"name": "user", "target": f"{here}:Net"},
        {"name": "user", "target": f"{here}:{attribute}"},
        {"lr": {"low": 1e-2, "high": 100.0}},
        "sgd",
        horizon=30,
        num_trials=10,
        extend=False,
        sampler="grid",
        confirm=False,
        watcher=seen,
    )
    assert len(result.region.records) == 10
    seen.notes = [note for note in seen.notes if not note.startswith("engine traced")]
    assert seen.notes[-1].startswith("engine cohort")
    said = "task user: 10 batches of x (20, 6) float32, y (20) int64; repeated every 10 steps"
    assert seen.notes[:-1] == ([said] if task.is_batched else [])


def test_a_target_is_called_under_a_seed_of_its_own(here):
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        build("user", target=f"{here}:pair")
        assert torch.equal(torch.get_rng_state(), before)
    drawn = sys.modules[here].DRAWN
    assert len(drawn) == 2 and drawn[0] == drawn[1]


def test_a_task_of_ours_is_a_target_too():
    assert isinstance(build("user", target="stabsweep.task:Digits"), Digits)
    task = build("user", target="stabsweep.task:Text", args={"length": 8})
    assert task.signature.length == 8 and task.name == "user"


REFUSED = [
    (
        None,
        None,
        r"task=user needs task\.target=module:attribute, such as task\.target=my_data:batch",
    ),
    ("mine", None, r"task\.target='mine' is not module:attribute"),
    (
        "{}:par",
        None,
        r"task\.target='mine_.*:par': mine_.* has no par; did you mean mine_.*:pair\?",
    ),
    ("{}:pair", {"size": 3}, r"task\.target=.* cannot be called with \(size=3\): TypeError"),
    ("{}:pair", [3], r"task\.args=\[3\] is no mapping: give keyword arguments"),
    ("{}:broken", None, r"task\.target=.* cannot be called with \(\): OSError: no such host$"),
    (
        "{}:number",
        None,
        r"task\.target=.* gives int: give \(loader, loss\), or what can be iterated",
    ),
    ("{}:numbers", None, r"task\.target=.* gives list: give \(loader, loss\), or what can be"),
]


@pytest.mark.parametrize("target, args, message", REFUSED, ids=[row[-1][:30] for row in REFUSED])
def test_a_target_that_cannot_be_used_gets_one_line(here, target, args, message):
    with pytest.raises(BadInput, match=message) as refusal:
        build("user", target=target and target.format(here), args=args)
    assert "\n" not in str(refusal.value)


def test_a_task_without_its_number_of_examples_is_refused(here):
    with pytest.raises(BadInput, match="task=Uncounted has no num_examples: set it to how many"):
        task = {"name": "user", "target": f"{here}:Uncounted"}
        stabsweep.sweep("mlp", task, {"lr": {"low": 1e-2, "high": 1.0}})


@pytest.mark.slow
def test_model_and_batches_from_files_of_ones_own_on_the_command_line(here, tmp_path):
    words = [f"model.target={here}:Net", "+model.args.width=4", "task=user", "space=lr"]
    words += [f"task.target={here}:pair", "+task.args.batch_size=50", "progress=plain"]
    words += ["+space.noise={values:[0,1],to:task}", "horizon=10", "num_trials=20", "seeds=1"]
    words += ["device=cpu", "sampler=grid", "hydra.run.dir=run"]
    done = subprocess.run(
        [sys.executable, "-m", "stabsweep", "model=user", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    said = "task user: 4 batches of x (50, 6) float32, y (50) int64; repeated every 4 steps"
    assert done.stderr.count(f"{said}\n") == 1 and "engine cohort: " in done.stderr
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    target, args = f"{here}:pair", {"batch_size": 50}
    assert config["task"] == {"name": "user", "target": target, "args": args}
    records = (tmp_path / "run" / "records.jsonl").read_text().splitlines()
    assert len(records) == 20
    # Interrupted after five: the rest is run again, and is the same.
    before = {record.trial: record.final_loss for record in read_records(tmp_path / "run")}
    (tmp_path / "run" / "records.jsonl").write_text("\n".join(records[:5]) + "\n")
    assert main(["resume", "run", "progress=off"]) == done.returncode
    after = {record.trial: record.final_loss for record in read_records(tmp_path / "run")}
    assert after == before
