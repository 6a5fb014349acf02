"""TensorBoard: event files in `DIR/tensorboard`, one run a trial and one for the sweep."""

from __future__ import annotations

import shlex
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

from stabsweep.log._entry import Entry, LoggedTrial


def write(entry: Entry, folder: Path) -> str:
    """Writes the event files; the command that shows them.

    Args:
        entry: the sweep.
        folder: its results.
    """
    from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[attr-defined]
    from torch.utils.tensorboard import SummaryWriter

    target = folder / "tensorboard"
    # Events of an earlier time would be drawn over the new ones.
    shutil.rmtree(target, ignore_errors=True)
    with closing(SummaryWriter(str(target / "sweep"))) as writer:
        writer.add_text("answer", entry.answer_markdown)
        for name, value in entry.metrics.items():
            writer.add_scalar(f"answer/{name}", value)
        # The file as it is: drawn once more it would need another decoder.
        png = entry.picture.read_bytes()
        width, height = (int.from_bytes(png[at : at + 4], "big") for at in (16, 20))
        image = Summary.Image(height=height, width=width, colorspace=4, encoded_image_string=png)
        _add(writer, Summary(value=[Summary.Value(tag="map", image=image)]))
    for trial in entry.trials:
        with closing(SummaryWriter(str(target / trial.name))) as writer:
            _write_trial(writer, trial)
    return f"tensorboard --logdir {shlex.quote(str(target))}"


def _write_trial(writer: Any, trial: LoggedTrial) -> None:
    from torch.utils.tensorboard.summary import hparams

    for name, curve in trial.curves.items():
        for step, value in zip(curve.steps, curve.values, strict=True):
            writer.add_scalar(name, value, int(step))
    writer.add_text("verdict", f"    {trial.reason}")
    metrics = {f"final/{name}": value for name, value in trial.metrics.items()}
    # What it knows no word for is text: it would refuse None.
    about = {
        key: value if isinstance(value, bool | int | float | str) else "none"
        for key, value in trial.hyperparameters.items()
    }
    # By hand, since `add_hparams` would make a run of its own for them.
    for part in hparams(about, metrics):
        _add(writer, part)
    for name, value in metrics.items():
        writer.add_scalar(name, value)


def _add(writer: Any, summary: Any) -> None:
    writer.file_writer.add_summary(summary, 0)
