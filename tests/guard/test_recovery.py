"""Checkpoints: verified, whole, the last few; going back and going on, bit by bit."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stabsweep.errors import BadInput
from stabsweep.guard import Outcome
from stabsweep.guard.checkpoint import (
    Checkpoints,
    find_unfit,
    generator_states,
    restore_generators,
)
from stabsweep.runlog import read_run
from tests.guard.runs import Training, batches, lines_of, same, weights


def test_the_last_few_are_kept_and_nothing_else_is_left(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path, keep=2)
    (tmp_path / ".step-00000001.pt.part").write_bytes(b"torn")
    for step in (2, 10, 5):
        kept.save({"step": step, "value": torch.tensor(step)})
    assert sorted(os.listdir(tmp_path)) == ["step-00000005.pt", "step-00000010.pt"]
    found = kept.load()
    assert found is not None and found["step"] == 10


def test_a_torn_file_is_passed_over(tmp_path: Path) -> None:
    kept, notes = Checkpoints(tmp_path), []
    for step in (1, 2):
        path = kept.save({"step": step, "value": torch.zeros(1000)})
    path.write_bytes(path.read_bytes()[:700])
    found = kept.load(notes.append)
    assert found is not None and found["step"] == 1
    assert len(notes) == 1 and "step-00000002.pt cannot be read and is passed over" in notes[0]


def test_no_file_can_run_code(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple:
            return (os.system, ("touch " + str(tmp_path / "ran"),))

    notes: list[str] = []
    torch.save({"format": 1, "step": 3, "x": Evil()}, tmp_path / "step-00000003.pt")
    assert Checkpoints(tmp_path).load(notes.append) is None
    assert notes and not (tmp_path / "ran").exists()


def test_what_is_not_finite_is_not_kept(tmp_path: Path) -> None:
    training = Training(log=tmp_path, checkpoint_every=5)
    training.run(7)
    state = training.optimizer.state[training.net[3].weight]
    state["exp_avg"][0, 1] = float("inf")
    assert training.guard.save() is None
    training.run(3)
    training.guard.close()
    assert os.listdir(tmp_path / "checkpoints") == ["step-00000005.pt"]
    event = [message for _, kind, message in training.guard.events if kind == "checkpoint"][0]
    assert event.startswith("no checkpoint at step 7: optimizer['state'][2]['exp_avg']")
    assert "1 Inf of 8 entries" in event


def test_a_mask_of_infinities_is_no_reason_against_a_checkpoint() -> None:
    states = {"model": {"mask": torch.tensor([0.0, -torch.inf]), "w": torch.ones(2)}}
    assert find_unfit(states) is not None
    assert find_unfit(states, ["model['mask']"]) is None


def test_every_generator_is_kept() -> None:
    def draw() -> list[float]:
        return [random.random(), float(np.random.rand()), float(torch.rand(()))]

    draw()
    state = generator_states()
    first = draw()
    restore_generators(state)
    assert draw() == first


def test_a_run_goes_back_with_a_lower_rate_and_its_scheduler(tmp_path: Path) -> None:
    training = Training(
        torch.optim.AdamW,
        policy="rollback",
        checkpoint_every=5,
        log=tmp_path,
        make_scheduler=lambda o: torch.optim.lr_scheduler.StepLR(o, 3, 0.1),
    )
    outcomes = training.run(14, {12: "gradient"})
    guard = training.guard
    assert outcomes[12] is Outcome.ROLLED_BACK and guard.num_steps == 10 + 1
    # Step 11 of a rate that is divided by ten every three steps, and halved by the roll-back.
    assert training.optimizer.param_groups[0]["lr"] == pytest.approx(0.5 * 1e-2 * 0.1 ** (11 // 3))
    assert "Back at step 10 with 0.5 times its learning rate." in guard.events[-1][2]
    guard.close()
    run = read_run(tmp_path)
    assert run.columns["step"].tolist() == [*range(13), 10]
    assert run.columns.path().tolist() == [*range(10), 13]


def test_data_that_are_not_finite_are_skipped_not_met_again(tmp_path: Path) -> None:
    training = Training(policy="rollback", checkpoint_every=5, log=tmp_path)
    outcomes = training.run(14, {12: "data"})
    assert outcomes[12] is Outcome.SKIPPED_NOT_FINITE and training.guard.num_steps == 13


def test_each_return_to_one_checkpoint_lowers_further_and_they_end(tmp_path: Path) -> None:
    training = Training(policy="rollback", max_rollbacks=2, checkpoint_every=50, log=tmp_path)
    outcomes = training.run(14, dict.fromkeys((3, 6, 9), "gradient"))
    assert [o for o in outcomes if not o.is_stepped] == [
        Outcome.ROLLED_BACK,
        Outcome.ROLLED_BACK,
        Outcome.STOPPED,
    ]
    assert training.optimizer.param_groups[0]["lr"] == pytest.approx(1e-2 / 4)
    assert "It is the same after 2 roll-backs (max_rollbacks)." in training.guard.reason


def test_a_run_that_goes_on_is_the_uninterrupted_one(tmp_path: Path) -> None:
    options = {"checkpoint_every": 10, "watch_every": 5}
    whole = Training(log=tmp_path / "whole", **options)
    whole.run(40, {17: "data"})
    whole.guard.close()
    first = Training(log=tmp_path / "cut", **options)
    first.run(35, {17: "data"})
    del first
    second = Training(log=tmp_path / "cut", resume=True, **options)
    assert second.guard.num_steps == 30 and second.guard.num_attempts == 31
    for number, batch in enumerate(batches(40)):
        if number >= second.guard.num_attempts:
            second.guard.step((second.net(batch[0]) - batch[1]).pow(2).mean(), batch)
    second.guard.close()
    assert same(weights(whole.net), weights(second.net))
    runs = [read_run(tmp_path / name) for name in ("whole", "cut")]
    for name in ("loss", "grad_norm", "lr", "step"):
        assert runs[0].columns[name].tolist() == pytest.approx(
            runs[1].columns[name].tolist(), nan_ok=True
        )


def test_a_folder_with_a_run_is_not_written_over(tmp_path: Path) -> None:
    training = Training(log=tmp_path)
    training.run(2)
    training.guard.close()
    with pytest.raises(BadInput, match="holds a run already: choose another folder"):
        Training(log=tmp_path)
    assert len(lines_of(tmp_path)) == 2


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    training = Training(log=tmp_path, checkpoint_every=1)
    training.run(2)
    training.guard.close()

    def groups(parameters: Any, lr: float) -> torch.optim.Optimizer:
        return torch.optim.AdamW([{"params": [p]} for p in parameters], lr)

    with pytest.raises(BadInput, match="the checkpoint's optimizer does not fit"):
        Training(groups, log=tmp_path, resume=True)


KILLED = """
    import sys, torch
    from tests.guard.runs import Training, batches
    from stabsweep.guard import checkpoint
    log, kill_at = sys.argv[1], int(sys.argv[2])
    t = Training(log=log, resume=True, checkpoint_every=5)
    save = torch.save
    def slow(state, file):
        save(state, file)
        if state["step"] == kill_at:
            # Half of it is on the disk.
            file.truncate(file.tell() // 2); file.flush()
            print("writing", flush=True); sys.stdin.read()
    torch.save = slow
    for number, batch in enumerate(batches(30)):
        if number >= t.guard.num_attempts:
            t.guard.step((t.net(batch[0]) - batch[1]).pow(2).mean())
    save([p.detach() for p in t.net.parameters()], log + "/weights.pt")
"""


@pytest.mark.slow
def test_a_kill_in_the_middle_of_a_checkpoint_loses_nothing(tmp_path: Path) -> None:
    """A real process, killed while it writes: the checkpoint before it is there, and goes on."""

    def start(folder: str, kill_at: int) -> subprocess.Popen:
        command = [sys.executable, "-c", textwrap.dedent(KILLED), folder, str(kill_at)]
        root = Path(__file__).parents[2]
        env = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        return subprocess.Popen(command, cwd=root, env=env, **pipes)

    cut, whole = str(tmp_path / "cut"), str(tmp_path / "whole")
    process = start(cut, 20)
    assert process.stdout is not None and process.stdout.readline() == b"writing\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    names = sorted(os.listdir(tmp_path / "cut" / "checkpoints"))
    assert names == [".step-00000020.pt.part", *(f"step-{n:08d}.pt" for n in (5, 10, 15))]
    for folder in (cut, whole):
        assert start(folder, -1).communicate(timeout=120)[0] == b""
    one, other = (torch.load(f"{folder}/weights.pt") for folder in (cut, whole))
    assert same(one, other)
    run = read_run(cut)
    assert run.columns["step"].tolist() == list(range(30))
    assert sorted(os.listdir(tmp_path / "cut" / "checkpoints"))[0].startswith("step-")


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("torn")])
def test_a_full_disk_ends_checkpoints_and_log_but_no_training(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(log=tmp_path, checkpoint_every=4)
    training.run(5)

    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(torch, "save", fail)
    training.run(5)
    assert training.guard.num_steps == 10
    assert os.listdir(tmp_path / "checkpoints") == ["step-00000004.pt"]
    messages = [message for _, kind, message in training.guard.events if kind == "checkpoint"]
    assert messages == [f"no checkpoint at step 8: {getattr(error, 'strerror', None) or error}"]
    monkeypatch.undo()
    if isinstance(error, OSError):
        journal = training.guard._attempts.journal
        assert journal._log is not None
        monkeypatch.setattr(journal._log, "append", fail)
        training.run(5)
        training.guard.close()
        assert training.guard.num_steps == 15
        assert len(lines_of(tmp_path)) == 10, "what was written is kept"
        said = [m for _, kind, m in training.guard.events if kind == "log"]
        assert said == ["the log ends here, training goes on: No space left on device"]
