from __future__ import annotations

import math

import pytest
import torch
import yaml
from torch import nn

import stabsweep
from stabsweep.errors import BadInput
from stabsweep.progress import Silence

TINY = {
    "horizon": 30,
    "num_trials": 12,
    "seeds": 2,
    "batch_size": 16,
    "device": "cpu",
    "watcher": "off",
}
SPACE = {"lr": {"low": 1e-3, "high": 10.0}}
MLP = {"name": "mlp", "width": 8, "depth": 2}


class Witness(Silence):
    """A watcher that remembers what it was told."""

    def __init__(self):
        self.title, self.notes, self.seen, self.stopped = "", [], [], 0

    def start(self, title, progress):
        self.title = title

    def note(self, message):
        self.notes.append(message)

    def update(self, progress):
        self.seen.append(progress)

    def stop(self):
        self.stopped += 1


def verdicts(result):
    return [(record.trial, record.verdict, record.final_loss) for record in result.region.records]


def test_a_sweep_answers_with_table_region_pick_and_picture():
    result = stabsweep.sweep(MLP, "digits", SPACE, **TINY)
    table = result.records
    assert len(table) == 12 and {"lr", "seed", "verdict", "final_loss"} <= set(table.columns)
    assert len(result.region.rows) == 1 and result.region.rows[0].edge.status == "found"
    assert result.pick.status in ("ok", "none")
    assert result.plot().axes
    headline = result.summary().split("\n\n")[0].replace("\n", " ")
    assert repr(result) == f"<Result: {headline}>" and headline in result._repr_html_()
    assert result.folder is None


def test_a_users_module_and_a_task_object_are_swept(tmp_path):
    from stabsweep.task import Digits

    result = stabsweep.sweep(
        lambda: nn.Sequential(nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 10)),
        Digits(),
        SPACE,
        folder=tmp_path / "run",
        **TINY,
    )
    assert len(result.region.records) == 12
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["task"] == {"python": "stabsweep.task.digits:Digits"}
    with pytest.raises(BadInput, match="was the Python object"):
        stabsweep.resume(tmp_path / "run", "off")


@pytest.mark.parametrize("sampler", ["grid", "random", "sobol"])
@pytest.mark.parametrize("engine", ["cohort", "loop"])
def test_no_result_depends_on_engine_cohort_or_rung(sampler, engine):
    space = {**SPACE, "clip_norm": [1.0, None], "optimizer": ["sgd", "adam"]}
    common = {**TINY, "num_trials": 16, "precision": "fp64", "sampler": sampler}
    whole = stabsweep.sweep(MLP, "digits", space, engine="cohort", cohort_size=64, **common)
    other = stabsweep.sweep(
        MLP, "digits", space, engine=engine, cohort_size=3, rung_steps=3, **common
    )
    for ours, theirs in zip(whole.region.records, other.region.records, strict=True):
        assert (ours.point, ours.seed) == (theirs.point, theirs.seed)
        assert ours.verdict.is_stable == theirs.verdict.is_stable
        if ours.state == theirs.state == "complete":
            assert ours.verdict is theirs.verdict
            assert ours.final_loss == pytest.approx(theirs.final_loss, rel=1e-6)


def test_pruning_changes_no_survivor_and_no_stability():
    space = {"lr": {"low": 1e-2, "high": 100.0}}
    common = {**TINY, "optimizer": "sgd", "horizon": 60, "sampler": "grid"}
    pruned = stabsweep.sweep(MLP, "digits", space, **common)
    whole = stabsweep.sweep(MLP, "digits", space, **common, pruner="none")
    assert any(record.state == "pruned" for record in pruned.region.records)
    assert all(record.state == "complete" for record in whole.region.records)
    for ours, theirs in zip(pruned.region.records, whole.region.records, strict=True):
        assert ours.verdict.is_stable == theirs.verdict.is_stable
        if ours.state == "complete":
            assert ours.final_loss == theirs.final_loss


@pytest.mark.parametrize(
    "sampler",
    ["tpe", {"name": "optuna", "target": "optuna.samplers:RandomSampler", "args": {"seed": 3}}],
)
def test_a_guide_runs_exactly_what_was_asked_with_paired_seeds(tmp_path, sampler):
    common = {**TINY, "num_trials": 11, "cohort_size": 3, "folder": tmp_path / "run"}
    result = stabsweep.sweep(MLP, "digits", SPACE, sampler=sampler, extend=False, **common)
    records = result.region.records
    assert [record.trial for record in records] == list(range(11))
    assert [record.seed for record in records] == [0, 1] * 5 + [0]
    assert all(records[2 * p].point == records[2 * p + 1].point for p in range(5))
    lines = (tmp_path / "run" / "records.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "run" / "records.jsonl").write_text("".join(lines[:7]))
    resumed = stabsweep.resume(tmp_path / "run", "off").region.records
    assert [(r.trial, r.seed) for r in resumed] == [(r.trial, r.seed) for r in records]
    assert all(resumed[2 * p].point == resumed[2 * p + 1].point for p in range(5))


def test_a_folder_of_an_older_version_is_gone_on_with(tmp_path):
    stabsweep.sweep(MLP, "digits", SPACE, folder=tmp_path / "run", **TINY)
    path = tmp_path / "run" / "config.yaml"
    config = yaml.safe_load(path.read_text())
    assert config.pop("pruner") == "divergence" and config["sampler"] == "boundary"
    path.write_text(yaml.safe_dump(config))
    assert len(stabsweep.resume(tmp_path / "run", "off").region.records) == 12


def test_a_folder_is_loaded_as_it_was_and_resumed_without_a_repeat(tmp_path):
    first = stabsweep.sweep(MLP, "digits", SPACE, folder=tmp_path / "run", **TINY)
    records = (tmp_path / "run" / "records.jsonl").read_bytes()
    again = stabsweep.load(tmp_path / "run")
    assert verdicts(again) == verdicts(first) and again.pick == first.pick
    resumed = stabsweep.resume(tmp_path / "run", "off")
    assert verdicts(resumed) == verdicts(first)
    assert (tmp_path / "run" / "records.jsonl").read_bytes() == records


def test_an_interrupt_keeps_what_is_known_and_resume_gives_the_whole(tmp_path):
    class Impatient(Witness):
        def update(self, progress):
            super().update(progress)
            if progress.num_done >= 3:
                raise KeyboardInterrupt

    common = {**TINY, "sampler": "grid", "cohort_size": 4, "folder": tmp_path / "run"}
    watcher = Impatient()
    part = stabsweep.sweep(MLP, "digits", SPACE, **{**common, "watcher": watcher})
    assert part.interrupted and 3 <= len(part.region.records) < 12 and watcher.stopped == 1
    assert any("of 12 trials" in warning for warning in part.pick.warnings)
    assert (tmp_path / "run" / "map.png").exists()
    resumed = stabsweep.resume(tmp_path / "run", "off")
    whole = stabsweep.sweep(MLP, "digits", SPACE, **{**common, "folder": None})
    assert not resumed.interrupted and verdicts(resumed) == verdicts(whole)


def test_the_watcher_sees_the_sweep_grow():
    watcher = Witness()
    common = {**TINY, "watcher": watcher, "cohort_size": 6, "sampler": "grid"}
    stabsweep.sweep(MLP, "digits", SPACE, **common)
    done = [progress.num_done for progress in watcher.seen]
    assert watcher.title == "adamw on mlp"
    assert any("cohort" in note for note in watcher.notes)
    assert done == sorted(done) and done[-1] == 12 and watcher.stopped == 1
    assert watcher.seen[0].num_running == 6 and watcher.seen[0].eta_seconds is not None
    assert sum(watcher.seen[-1].counts.values()) == 12
    assert not any(progress.may_stop for progress in watcher.seen)


def test_which_engine_ran_and_why_is_kept(tmp_path, monkeypatch):
    from stabsweep.engine import Cohort

    advance = Cohort.advance

    def small(self, num_steps):
        if len(self.trials) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return advance(self, num_steps)

    monkeypatch.setattr(Cohort, "advance", small)
    watcher, folder = Witness(), tmp_path / "run"
    common = {**TINY, "watcher": watcher, "cohort_size": 8, "confirm": False, "stress": False}
    common["sampler"] = "grid"
    notes = stabsweep.sweep(MLP, "digits", SPACE, folder=folder, **common).notes
    assert notes == tuple(watcher.notes) and len(notes) == 3
    assert notes[0] == "engine cohort: up to 8 trials as one program"
    assert notes[1] == "out of memory: going on with cohorts of 4 trials"
    assert notes[2].startswith("engine traced, ")
    assert stabsweep.sweep(MLP, "digits", SPACE, **common).notes[:2] == notes[:2]
    for result in (stabsweep.load(folder), stabsweep.resume(folder, "off")):
        assert result.notes == notes and result.as_dict()["notes"] == list(notes)
        said = " ".join(result.summary().split())
        assert "Engine cohort: up to 8 trials as one program; out of memory: going on" in said
        result.save_report()
        assert all(note in (folder / "report.html").read_text() for note in notes)


def test_a_profile_needs_a_folder():
    with pytest.raises(BadInput, match="profile=true is written beside the results: give a folder"):
        stabsweep.sweep(MLP, "digits", SPACE, **TINY, profile=True)


def test_a_model_that_is_broken_from_the_start_is_invalid_not_diverged():
    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.readout = nn.Linear(64, 10)

        def forward(self, inputs):
            return self.readout(inputs).sub(1e9).log()

    result = stabsweep.sweep(Broken, "digits", SPACE, **TINY)
    assert set(result.records["verdict"]) == {"invalid"}
    assert not result.pick.is_ok and "broken" in result.pick.reason
    assert "Loss not finite at step 0" in result.pick.reason


def test_a_broken_example_is_invalid_and_sends_nobody_to_lower_rates():
    from stabsweep.task import Digits

    class Holed(Digits):
        def __init__(self):
            super().__init__()
            self.inputs = self.inputs.clone()
            self.inputs[5, 3] = math.nan

    space = {"lr": {"low": 1e-4, "high": 1e-1}}
    common = {**TINY, "horizon": 150, "num_trials": 16}
    result = stabsweep.sweep(MLP, Holed(), space, **common)
    assert all((record.bad_step or 0) > 0 for record in result.region.records)
    assert set(result.records["verdict"]) == {"invalid"}
    assert "Every rate of this seed failed at this step" in result.pick.reason
    assert "Go lower" not in result.pick.reason


def test_a_forward_pass_that_overflows_is_told_from_a_gradient_that_explodes():
    rnn = {"name": "rnn", "cell": "relu", "hidden": 16}
    space = {"lr": {"low": 1e-3, "high": 10.0}, "clip_norm": [1.0, None]}
    task = {"name": "adding", "length": 60}
    common = {**TINY, "init": "spectral(1.5)", "optimizer": "sgd", "num_trials": 24}
    common["sampler"] = "grid"
    records = stabsweep.sweep(rnn, task, space, **common).region.records
    reasons = {True: "", False: ""}
    for record in records:
        reasons[record.point["clip_norm"] is None] += record.reason
    assert "the gradient exploded" in reasons[True] and "clip_norm may prevent" in reasons[True]
    assert "the gradient exploded" not in reasons[False]
    assert "the forward pass failed" in reasons[False]


def test_the_global_generator_is_left_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    stabsweep.sweep(MLP, "digits", SPACE, **TINY)
    assert torch.equal(torch.rand(3), expected)


def test_defaults_are_those_of_the_configuration():
    import inspect

    from omegaconf import OmegaConf

    from stabsweep.config import find_folder

    conf = OmegaConf.load(find_folder() / "config.yaml")
    for name, parameter in inspect.signature(stabsweep.sweep).parameters.items():
        if name in conf and name not in ("model", "task", "optimizer", "space"):
            assert conf[name] == parameter.default, name


def test_losses_that_are_not_finite_are_null_in_the_table(tmp_path):
    space = {"lr": {"low": 1e3, "high": 1e9}}
    given = {"sampler": "grid", "extend": False, **TINY}
    stabsweep.sweep(MLP, "digits", space, "sgd", folder=tmp_path / "run", **given)
    text = (tmp_path / "run" / "records.jsonl").read_text()
    assert "NaN" not in text and "Infinity" not in text and '"final_loss": null' in text
    assert math.isnan(stabsweep.load(tmp_path / "run").records["final_loss"].iloc[-1])


def test_a_trial_that_the_model_itself_refuses_is_failed_and_ends_no_sweep(tmp_path):
    class Picky(nn.Module):
        def __init__(self):
            super().__init__()
            self.readout = nn.Linear(64, 10)

        def forward(self, inputs):
            if self.readout.weight.abs().max() > 50:
                raise ValueError("weights too large")
            return self.readout(inputs)

    space = {"lr": {"low": 1e-2, "high": 1e6}}
    common = {**TINY, "extend": False, "folder": tmp_path / "run"}
    result = stabsweep.sweep(Picky, "digits", space, "sgd", **common)
    failed = [record for record in result.region.records if record.state == "failed"]
    assert 0 < len(failed) < 12 and result.region.rows[0].best is not None
    assert {record.error for record in failed} == {"ValueError: weights too large"}
    assert "weights too large" in (tmp_path / "run" / "report.html").read_text()
    assert stabsweep.load(tmp_path / "run").pick == result.pick


def test_an_axis_of_the_model_gives_what_a_sweep_of_each_value_gives():
    common = {**TINY, "model": "mlp", "task": "digits", "num_trials": 20, "horizon": 12}
    common["sampler"] = "grid"
    whole = stabsweep.sweep(
        **{**common, "space": {**SPACE, "width": {"values": [4, 8], "to": "model"}}}
    )
    for width in (4, 8):
        alone = stabsweep.sweep(
            **{
                **common,
                "model": {"name": "mlp", "width": width},
                "space": SPACE,
                "num_trials": 10,
            }
        )
        found = whole.records[whole.records.width == width]
        assert found.final_loss.tolist() == alone.records.final_loss.tolist()


def test_a_folder_knows_what_its_axes_feed(tmp_path):
    common = {**TINY, "model": MLP, "task": "digits", "num_trials": 20, "horizon": 5}
    common["space"] = {**SPACE, "width": [4, 8], "readout": {"low": 0.1, "high": 1, "to": "lr:r*"}}
    swept = stabsweep.sweep(**common, folder=tmp_path / "a")
    assert verdicts(stabsweep.load(tmp_path / "a")) == verdicts(swept)
    assert len(stabsweep.resume(tmp_path / "a", watcher="off").records) == len(swept.records)


def test_a_sweep_whose_sampler_is_satisfied_ends_early_and_says_so(tmp_path):
    folder, watcher = tmp_path / "run", Witness()
    space = {**SPACE, "warmup_steps": [0, 10]}
    given = {**TINY, "watcher": watcher, "num_trials": 300, "cohort_size": 8}
    sampler = {"name": "boundary", "tolerance": 0.2}
    result = stabsweep.sweep(MLP, "digits", space, folder=folder, sampler=sampler, **given)
    number = len(result.region.records)
    assert number < 200
    assert result.ending == (
        f"Stopped after {number} of 300 trials: the edge is known to 0.2 decades on every row."
    )
    assert result.ending in watcher.notes
    last = watcher.seen[-1]
    assert last.num_trials == last.num_done == number and last.share == 1
    assert not any(warning.startswith("Only ") for warning in result.pick.warnings)
    assert "Ended" in result.summary() and "Only" not in result.summary()
    again = stabsweep.load(folder)
    assert again.ending == result.ending == again.as_dict()["ending"]
    assert again.pick == result.pick
    resumed = stabsweep.resume(folder, "off")
    assert len(resumed.region.records) == number and resumed.ending == result.ending


def test_a_sweep_whose_budget_is_spent_says_what_is_known():
    sampler = {"name": "boundary", "tolerance": 0.01}
    result = stabsweep.sweep(MLP, "digits", SPACE, sampler=sampler, **TINY)
    assert len(result.region.records) == 12
    assert result.ending.startswith("Budget spent after 12 of 12 trials: the edge is known to ")
    assert stabsweep.sweep(MLP, "digits", SPACE, sampler="grid", **TINY).ending is None


def test_a_sweep_goes_to_the_edge_unless_it_is_told_otherwise():
    watcher = Witness()
    given = {**TINY, "num_trials": 40, "cohort_size": 64, "watcher": watcher}
    result = stabsweep.sweep(MLP, "digits", SPACE, **given)
    assert result.config["sampler"] == "boundary" and result.ending is not None
    # It asks for no more than it can learn from, however much room there is.
    assert max(progress.num_running for progress in watcher.seen) == 13
    assert watcher.seen[0].may_stop and watcher.seen[0].num_trials == 40
    assert not watcher.seen[-1].may_stop and watcher.seen[-1].share == 1


@pytest.mark.parametrize("sampler", ["boundary", {"name": "boundary", "tolerance": 0.2}])
def test_rates_that_are_listed_are_all_run(tmp_path, sampler):
    watcher, rates = Witness(), [1e-3, 1e-2, 0.1, 1.0, 10.0]
    given = {**TINY, "num_trials": 6, "watcher": watcher, "folder": tmp_path / "run"}
    space = {"lr": rates, "clip_norm": [1.0, None]}
    result = stabsweep.sweep(MLP, "digits", space, sampler=sampler, **given)
    tried = [(r.point["lr"], r.point["clip_norm"], r.seed) for r in result.region.records]
    assert sorted(tried, key=str) == sorted(
        [(lr, norm, seed) for lr in rates for norm in (1.0, None) for seed in (0, 1)], key=str
    )
    said = "sampler: space.lr lists its rates, so all of them are run (sampler=grid)"
    assert said in watcher.notes and said in result.notes and result.ending is None
    assert len(stabsweep.resume(tmp_path / "run", "off").region.records) == len(tried)
