from __future__ import annotations

import json
import os
from dataclasses import asdict, replace

import numpy as np
import pytest
import yaml

from stabsweep import rejudge
from stabsweep.errors import BadInput
from stabsweep.evidence import DEFAULTS, Thresholds
from stabsweep.records import Verdict
from stabsweep.rejudging import THRESHOLD_NAMES, parse_thresholds
from stabsweep.store import read_records, read_trace

STRICT = Thresholds(learned=0.5)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A real sweep, with trials that were pruned."""
    from stabsweep import sweep

    folder = tmp_path_factory.mktemp("rejudging") / "run"
    sweep(
        {"name": "mlp", "width": 8, "depth": 2},
        "digits",
        {"lr": {"low": 1e-3, "high": 1e3}, "warmup_steps": [0, 10]},
        "sgd",
        horizon=60,
        num_trials=40,
        seeds=2,
        device="cpu",
        folder=folder,
        watcher="off",
    )
    return folder


@pytest.fixture
def copied(swept, tmp_path):
    """A folder that a test may change."""
    import shutil

    return shutil.copytree(swept, tmp_path / "run")


def rewrite(folder, change):
    """Puts `change(record)` in the place of every record."""
    lines = [json.dumps(change(r).as_dict()) for r in read_records(folder)]
    (folder / "records.jsonl").write_text("\n".join(lines) + "\n")


def files(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_todays_thresholds_find_what_they_found(swept):
    before = files(swept)
    found = rejudge(swept)
    assert found.old == found.new and not found.changed and not found.shifts
    assert any(r.state == "pruned" for r in found.new)
    assert found.num_judged == 40 and not found.left and not found.num_restated
    text = found.summary()
    assert "0 of 40 verdicts changed" in text and "as before" in text
    assert files(swept) == before


def test_other_thresholds_change_verdicts_and_only_tell(swept):
    before = files(swept)
    found = rejudge(swept, STRICT)
    assert found.changed and found.overrides == {"learned": (0.05, 0.5)}
    text = found.summary()
    for part in ("from \\ to", "learned=0.5 (today 0.05)", "seed=0", "save=true", "converged ->"):
        assert part in text
    plain = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert len(plain["changed"]) == len(found.changed) and plain["kept"] is None
    assert plain["thresholds"]["learned"] == 0.5
    assert files(swept) == before


def test_what_is_saved_can_be_taken_back(copied):
    first = (copied / "records.jsonl").read_bytes()
    found = rejudge(copied, STRICT, save=True)
    assert found.kept == copied / "records.before-judge.jsonl"
    assert found.kept.read_bytes() == first
    assert tuple(read_records(copied)) == found.new != found.old
    assert yaml.safe_load((copied / "thresholds.yaml").read_text()) == asdict(STRICT)
    assert yaml.safe_load((copied / "pick.yaml").read_text())["status"] == found.after.pick.status
    assert not list(copied.glob("*.part"))
    assert "Judged again with" in (copied / "report.html").read_text()
    back = rejudge(copied, save=True)
    assert back.kept.name == "records.before-judge-2.jsonl" and found.kept.read_bytes() == first
    assert read_records(copied) == list(found.old)
    again = rejudge(copied, save=True)
    assert again.is_saved and "no record is another one" in again.summary()
    assert again.kept is None and len(list(copied.glob("records.*.jsonl"))) == 2


@pytest.mark.parametrize("at", range(2))
def test_a_process_that_is_killed_loses_no_record(copied, monkeypatch, at):
    """Killed before each rename in turn, the folder holds the old records whole."""
    first = read_records(copied)
    calls = []

    def killed(*paths):
        calls.append(paths)
        if len(calls) > at:
            raise KeyboardInterrupt
        return rename(*paths)

    rename = os.replace
    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        rejudge(copied, STRICT, save=True)
    monkeypatch.undo()
    assert read_records(copied) == first
    assert rejudge(copied, STRICT, save=True).kept


def test_a_sweep_that_goes_on_meanwhile_is_not_overwritten(copied, monkeypatch):
    from stabsweep import rejudging

    replaced = rejudging.replace_records

    def late(folder, records, expected):
        with open(folder / "records.jsonl", "a") as file:
            last = replace(list(expected)[-1], trial=999)
            file.write(json.dumps(last.as_dict()) + "\n")
        return replaced(folder, records, expected)

    monkeypatch.setattr(rejudging, "replace_records", late)
    with pytest.raises(BadInput, match="wait until its sweep has ended"):
        rejudge(copied, STRICT, save=True)
    assert len(read_records(copied)) == 41 and not list(copied.glob("*.part"))


def test_a_full_disk_is_one_line(copied, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    first = (copied / "records.jsonl").read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BadInput, match="No space left on device"):
        rejudge(copied, STRICT, save=True)
    assert (copied / "records.jsonl").read_bytes() == first


def test_what_cannot_be_judged_is_left_and_counted(copied):
    (copied / "2.npy").write_bytes(b"\x93NUMPY torn")
    np.save(copied / "3.npy", np.zeros((2, 9)))
    (copied / "4.npy").write_bytes(b"")

    def change(record):
        if record.trial == 0:
            return replace(record, state="failed", error="out of luck", trace=None)
        if record.trial == 5:
            return replace(record, trace=None)
        return replace(record, trace=f"{record.trial}.npy") if 0 < record.trial < 5 else record

    rewrite(copied, change)
    first = read_records(copied)
    found = rejudge(copied, Thresholds(tail_share=0.5))
    assert found.left == {
        "they ended in an error": 1,
        "without a trace that can be read": 5,
    }
    assert list(found.new[:6]) == first[:6]
    assert found.num_restated and "40" not in found.summary().split(" changed")[0]
    assert "without a trace that can be read" in found.summary()


def test_what_was_cut_for_its_loss_stays_cut_unless_it_diverged(copied):
    first = read_records(copied)
    held = next(r for r in first if r.verdict is Verdict.CONVERGED).trial
    ran_away = next(r for r in first if r.verdict is Verdict.DIVERGED).trial
    cut = {"verdict": Verdict.CUT_SHORT, "reason": "Stopped.", "state": "pruned"}
    rewrite(copied, lambda r: replace(r, **cut) if r.trial in (held, ran_away) else r)
    found = rejudge(copied)
    assert found.new[held].verdict is Verdict.CUT_SHORT and found.new[held].reason == "Stopped."
    assert found.new[ran_away].verdict is Verdict.DIVERGED
    assert found.left == {"stopped for their loss alone": 1}


def test_losses_that_are_not_finite_stay_so(copied):
    """A record holds None for what was not finite; the verdict comes out the same."""
    curves = read_trace(copied, read_records(copied)[7])
    curves[0, 3:] = np.nan
    np.save(copied / "7.npy", curves)
    rewrite(copied, lambda r: replace(r, trace="7.npy") if r.trial == 7 else r)
    found = rejudge(copied)
    assert found.new[7].verdict.label == "diverged" and found.new[7].bad_step == 3
    rewrite(copied, lambda r: replace(r, initial_loss=None) if r.trial == 7 else r)
    assert rejudge(copied).new[7].verdict.label == "invalid"


def test_every_threshold_can_be_given_as_text():
    for name in THRESHOLD_NAMES:
        value = getattr(DEFAULTS, name)
        found = parse_thresholds({name: str(value * 2)})
        assert getattr(found, name) == value * 2
        assert type(getattr(found, name)) is type(value)
    assert parse_thresholds({}) == DEFAULTS


@pytest.mark.parametrize("name", THRESHOLD_NAMES)
def test_the_least_of_every_threshold_judges_without_an_error(swept, name):
    least = {"tail_steps": "1", "spike_window": "4"}.get(name, "0")
    assert rejudge(swept, parse_thresholds({name: least})).num_judged == 40


@pytest.mark.parametrize(
    "name, value, part",
    [
        ("lerned", "0.1", "did you mean learned?"),
        ("learned", "much", "learned='much' is not allowed: use a finite number >= 0"),
        ("learned", "nan", "finite number"),
        ("learned", "-1", ">= 0"),
        ("spike_bursts", "2.5", "spike_bursts='2.5' is not allowed: use a whole number >= 0"),
        ("tail_steps", "0", ">= 1"),
        ("spike_window", "3", ">= 4"),
    ],
)
def test_a_threshold_that_cannot_be_is_bad_input(name, value, part):
    with pytest.raises(BadInput) as error:
        parse_thresholds({name: value})
    assert part in str(error.value) and "\n" not in str(error.value)
