"""Read back by TensorBoard's own reader."""

from __future__ import annotations

import numpy as np
import pytest
import yaml

import stabsweep
from stabsweep import log
from stabsweep.cli import main
from tests.log.conftest import GIVEN

pytest.importorskip("tensorboard", reason="TensorBoard is not installed: pip install tensorboard")

# Of TensorBoard's own modules, which import what newer libraries have renamed.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def read(folder):
    """Run -> what TensorBoard reads of it, nothing left out."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    everything = {"scalars": 0, "images": 0, "tensors": 0}
    runs = {}
    for path in sorted((folder / "tensorboard").iterdir()):
        runs[path.name] = EventAccumulator(str(path), everything)
        runs[path.name].Reload()
    return runs


def hparams_of(run):
    """Hyperparameters as the HParams plugin reads them."""
    from tensorboard.plugins.hparams.metadata import parse_session_start_info_plugin_data as parse

    content = run.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    values = parse(content).hparams
    return {name: getattr(value, value.WhichOneof("kind")) for name, value in values.items()}


def test_everything_is_read_back(folder, capsys):
    # Twice: nothing of the first time may stay.
    for _ in range(2):
        assert main(["report", str(folder), "log=tensorboard"]) in (0, 1)
    said = capsys.readouterr()
    entry = log.make_entry(stabsweep.load(folder))
    assert f"log: tensorboard has {len(entry.trials)} of 20 trials: " in said.err
    assert f"tensorboard --logdir '{folder}/tensorboard'" in said.err
    runs = read(folder)
    assert list(runs) == sorted(["sweep", *(trial.name for trial in entry.trials)])
    (image,) = runs["sweep"].Images("map")
    assert image.encoded_image_string == (folder / "map.png").read_bytes()
    assert image.width > image.height > 300
    (text,) = runs["sweep"].Tensors("answer/text_summary")
    assert text.tensor_proto.string_val[0].decode() == entry.answer_markdown
    for trial in entry.trials:
        run = runs[trial.name]
        for name, curve in trial.curves.items():
            events = run.Scalars(name)
            assert [event.step for event in events] == curve.steps.tolist()
            assert np.allclose([event.value for event in events], curve.values, rtol=1e-6)
        found = hparams_of(run)
        assert found["lr"] == trial.hyperparameters["lr"] and found["clip_norm"] == "none"
        assert found["verdict"] == trial.hyperparameters["verdict"]
        (final,) = run.Scalars("final/stable")
        assert final.value == trial.metrics["stable"]
    assert any("diverged" in name for name in runs)


def test_a_sweep_writes_it_at_its_end_and_is_the_same_sweep(tmp_path, capsys):
    given = {**GIVEN, "num_trials": 8, "seeds": 1, "watcher": "plain"}
    stabsweep.sweep(**given, folder=tmp_path / "run", log=["tensorboard"])
    assert f"tensorboard --logdir {tmp_path}/run/tensorboard\n" in capsys.readouterr().err
    assert len(read(tmp_path / "run")) > 3
    assert "log" not in yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    # Nothing runs again, and it may be asked for later.
    result = stabsweep.resume(tmp_path / "run", "off", log=None)
    assert len(result.region.records) == 8
