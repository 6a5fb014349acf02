"""What is kept of a run beside its lines: the terminal's line, TensorBoard, the summary."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import yaml

from stabsweep.guard.live import LiveLine
from stabsweep.runlog import read_run
from tests.guard.runs import Training


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_one_line_that_renews_itself() -> None:
    stream = Terminal()
    live = LiveLine("auto", total_steps=200, stream=stream)
    assert live.is_due
    live.show(12, 1.2345, 3e-4, 0.7, 0.25, "converged")
    assert not live.is_due, "not faster than one can read"
    live.say("batch 13 was skipped")
    written = stream.getvalue()
    assert "step 12/200  loss 1.23  lr 3.0e-4  norm 0.7  clipped 25%  converged" in written
    assert written.startswith("\r") and written.endswith("\nbatch 13 was skipped\n")


def test_where_there_is_no_terminal_events_alone_are_shown() -> None:
    for mode, expected in (("auto", "event\n"), ("off", "")):
        stream = io.StringIO()
        live = LiveLine(mode, stream=stream)
        assert not live.is_due
        live.say("event")
        assert stream.getvalue() == expected
    stream = io.StringIO()
    LiveLine("plain", stream=stream).show(1, 1.0, 0.1, 1.0, 0.0, "")
    assert stream.getvalue().startswith("step 1  loss 1.00")


def test_a_run_without_a_close_has_its_summary_all_the_same(tmp_path: Path) -> None:
    training = Training(log=tmp_path)
    training.run(5, {2: "data"})
    del training
    summary = yaml.safe_load((tmp_path / "summary.yaml").read_text())
    assert summary["steps"] == 4 and summary["outcomes"]["skipped_not_finite"] == 1
    assert summary["non_finite"] == {"count": 1, "first_attempt": 2}
    assert summary["events"] == {"not_finite": 1}


def test_the_environment_is_kept(tmp_path: Path) -> None:
    training = Training(log=tmp_path)
    training.run(1)
    training.guard.close()
    assert '"torch"' in (tmp_path / "environment.json").read_text()
    assert read_run(tmp_path).about["clipper"] == {"name": "norm", "clip_norm": 1.0}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of tensorboard's own imports
def test_tensorboard_gets_the_curves_as_they_are(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    training = Training(log=tmp_path, tensorboard=True, watch_every=2)
    training.run(6, {4: "target"})
    training.guard.close()
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    tags = set(board.Tags()["scalars"])
    assert {"loss", "grad_norm", "lr", "update_ratio", "grad_norm/0", "update_ratio/3"} <= tags
    losses = [event.value for event in board.Scalars("loss")]
    assert len(losses) == 6 and losses[4] == float("inf")
    assert losses[:2] == pytest.approx(read_run(tmp_path).columns["loss"][:2].tolist())
