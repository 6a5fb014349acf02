from __future__ import annotations

import subprocess
import sys
import time

import optuna
import pytest

import stabsweep
from stabsweep.cli import main
from stabsweep.errors import BadInput
from stabsweep.extension import HIGHEST, LOWEST, Extension, find_extension, read_extensions
from stabsweep.pick import find_pick
from stabsweep.progress import Silence
from stabsweep.records import Record, Verdict
from stabsweep.region import find_region
from stabsweep.space import Space
from stabsweep.store import read_config, read_notes, read_records

RATES = [1e-4, 1e-3, 1e-2, 1e-1, 1.0]


def records(*rows):
    """Records of rows of words, a letter a rate: converged, failed, slow, invalid, noisy."""
    verdicts = {"c": "converged", "f": "diverged", "s": "too_slow", "i": "invalid", "n": "spiky"}
    found = []
    for k, word in enumerate(rows):
        for lr, letter in zip(RATES, word, strict=True):
            if letter == "-":
                continue
            verdict = Verdict[verdicts[letter].upper()]
            # Lower towards higher rates, and in the first of two rows.
            loss = {"c": 1.0 - 0.1 * RATES.index(lr) + k, "n": 1.5, "s": 2.0}.get(letter)
            known = {"blind_loss": 2.0, "initial_loss": 2.3, "horizon": 100}
            point = {"lr": lr, "warmup_steps": 10 * k}
            provisional = letter == "s"
            found.append(
                Record(
                    len(found), point, 0, verdict, final_loss=loss, provisional=provisional, **known
                )
            )
    return found


def added(*rows, low=1e-4, high=1.0):
    lr = {"low": low, "high": high}
    space = Space.parse({"lr": lr, "warmup_steps": [10 * k for k in range(len(rows))]})
    region = find_region(space, records(*rows))
    return find_extension(region, find_pick(region))


# ------------------------------------------------------------------------------ the rule


@pytest.mark.parametrize(
    ("rows", "part", "why"),
    [
        (["ccccc"], (1.0, 10.0), "nothing failed up to 1"),
        (["sccfc"], None, ""),
        (["sccff"], None, ""),
        (["fffff"], (1e-5, 1e-4), "nothing is stable down to 1.0e-4"),
        (["ccfff"], (1e-5, 1e-4), "the best safe rate, 1.0e-4, is the lowest tried"),
        (["cffff"], (1e-5, 1e-4), "no rate is safe down to 1.0e-4"),
        (["nffff"], (1e-5, 1e-4), "no rate is safe down to 1.0e-4"),
        (["sffff"], None, ""),
        (["sssss"], (1.0, 10.0), "nothing was learned or failed up to 1"),
        (["sssff"], None, ""),
        (["iiiii"], None, ""),
        # The best row decides, whatever the other does.
        (["ccccc", "sccff"], (1.0, 10.0), "nothing failed up to 1 in the best row"),
        (["sccff", "ccccc"], None, ""),
        (["sccff", "fffff"], None, ""),
        (["fffff", "fffff"], (1e-5, 1e-4), "nothing is stable down to 1.0e-4"),
        (["fffff", "sssss"], None, ""),
        # A row that was not tried near an end says nothing of it.
        (["ccc--", "ccccf"], None, ""),
        (["--cff", "ccccf"], None, ""),
    ],
)
def test_the_row_of_the_answer_says_where_to_go(rows, part, why):
    found = added(*rows)
    assert found == (part and (Extension(*part), why))


def test_no_part_goes_beyond_the_limits_or_is_too_small_to_matter():
    assert added("ccccc", high=1.0) == (Extension(1.0, 10.0), "nothing failed up to 1")
    region = find_region(Space.parse({"lr": {"low": 1e-4, "high": 300.0}}), [])
    assert find_extension(region, find_pick(region)) is None
    for axis, word, part in (
        ({"low": 1e-4, "high": HIGHEST / 2}, "converged", (HIGHEST / 2, HIGHEST)),
        ({"low": 1e-4, "high": HIGHEST / 1.1}, "converged", None),
        ({"low": 1e-4, "high": 5 * HIGHEST}, "converged", None),
        ({"low": 2 * LOWEST, "high": 1.0}, "diverged", (LOWEST, 2 * LOWEST)),
        ({"low": LOWEST, "high": 1.0}, "diverged", None),
    ):
        ends = [Record(k, {"lr": axis[key]}, 0, Verdict[word.upper()], final_loss=1.0 - k / 9)
                for k, key in enumerate(("low", "high"))]  # fmt: skip
        region = find_region(Space.parse({"lr": axis}), ends)
        found = find_extension(region, find_pick(region))
        assert (found and found[0]) == (part and Extension(*part))


def test_listed_rates_are_not_added_to():
    for word in ("ccccc", "fffff"):
        region = find_region(Space.parse({"lr": RATES, "warmup_steps": [0]}), records(word))
        assert find_extension(region, find_pick(region)) is None


@pytest.mark.parametrize("given", [3, [1], [{"low": 1}], [{"low": 2, "high": 1}], [{"low": "x"}]])
def test_an_edited_config_is_one_line(given):
    with pytest.raises(BadInput, match="is not a list of"):
        read_extensions({"extended": given})


# ------------------------------------------------------------------------------ whole sweeps

QUADRATIC = {
    "model": "vector",
    "task": {"name": "quadratic", "eigenvalues": [1.0]},
    "optimizer": {"name": "sgd", "momentum": 0.0},
    "horizon": 60,
    "num_trials": 16,
    "seeds": 1,
    "precision": "fp64",
    "device": "cpu",
    "confirm": False,
    "stress": False,
    "curvature": False,
    "sampler": "grid",
    "watcher": "off",
}
"""Its edge is 2 / 1."""

BELOW, ABOVE = {"lr": {"low": 0.01, "high": 1.0}}, {"lr": {"low": 5.0, "high": 100.0}}
EVERY = [
    "grid",
    "random",
    "sobol",
    "boundary",
    "tpe",
    {"name": "optuna", "target": "optuna.samplers:RandomSampler"},
]


class Impatient(Silence):
    """A watcher that presses Ctrl-C after so many trials."""

    def __init__(self, after):
        self.after = after

    def update(self, progress):
        if progress.num_done >= self.after:
            raise KeyboardInterrupt


def told(record):
    return {**record.as_dict(), "seconds": 0, "trace": None}


@pytest.mark.parametrize("sampler", EVERY, ids=str)
@pytest.mark.parametrize("space", [BELOW, ABOVE], ids=["below", "above"])
def test_an_edge_outside_of_the_range_is_found(sampler, space):
    given = {**QUADRATIC, "sampler": sampler}
    if sampler == "boundary":  # It spreads what it must ask at once, and needs answers after that.
        given |= {"num_trials": 32, "cohort_size": 4}
    result = stabsweep.sweep(space=space, **given)
    edge = result.region.rows[0].edge
    assert edge.status == "found" and edge.low <= 2 <= edge.high
    assert [r.trial for r in result.region.records] == list(range(len(result.region.records)))
    (part,) = result.config["extended"]
    assert part == ({"low": 1.0, "high": 10.0} if space is BELOW else {"low": 0.5, "high": 5.0})
    outside = [r for r in result.region.records if part["low"] < r.lr < part["high"]]
    assert 4 <= len(outside) <= given["num_trials"]
    assert result.pick.is_ok and not any("space.lr" in text for text in result.pick.warnings)


def test_it_says_so_everywhere(tmp_path):
    class Witness(Silence):
        notes, seen = [], []

        def note(self, message):
            self.notes.append(message)

        def update(self, progress):
            self.seen.append((progress.num_done, progress.num_trials))

    folder, watcher = tmp_path / "run", Witness()
    given = {**QUADRATIC, "watcher": watcher}
    result = stabsweep.sweep(space=BELOW, folder=folder, **given)
    line = "extended: nothing failed up to 1; 1 to 10 added, 8 more trials"
    assert watcher.notes.count(line) == 1 and line in result.notes
    assert watcher.seen[0][1] == 16 and watcher.seen[-1] == (24, 24)
    again = stabsweep.load(folder)
    assert again.pick == result.pick and again.region == result.region
    for one in (result, again):
        text = " ".join(one.summary().split())
        assert "Extended nothing failed up to 1; 1 to 10 added, 8 more trials" in text
        assert "Only" not in text and text.count("added") == 1
        assert one.as_dict()["extended"] == [{"low": 1.0, "high": 10.0}]
        assert one.as_dict()["trials_planned"] == 24
        assert (one.region.space.axes["lr"].low, one.region.space.axes["lr"].high) == (0.01, 10)
    page = (folder / "report.html").read_text()
    assert "<b>Extended</b> nothing failed up to 1;" in page
    config = read_config(folder)
    assert config["space"]["lr"]["high"] == 1.0 and config["num_planned"] == 24
    assert not stabsweep.compare(result, again).differences
    assert read_notes(folder).count(line) == 1


def test_it_is_left_out_where_that_is_asked_for_or_rates_are_listed():
    off = stabsweep.sweep(space=BELOW, extend=False, **QUADRATIC)
    assert len(off.region.records) == 16 and "extended" not in off.config
    assert any("raise space.lr.high" in text for text in off.pick.warnings)
    listed = stabsweep.sweep(space={"lr": [0.1, 0.5, 1.0]}, **QUADRATIC)
    assert len(listed.region.records) == 3
    with pytest.raises(BadInput, match="extend='maybe' is no switch: use true or false"):
        stabsweep.sweep(space=BELOW, extend="maybe", **QUADRATIC)


def test_there_are_two_extensions_at_most_and_then_advice():
    low = {"lr": {"low": 1e-4, "high": 1e-2}}
    result = stabsweep.sweep(space=low, **{**QUADRATIC, "horizon": 600, "num_trials": 8})
    assert [part["high"] for part in result.config["extended"]] == [0.1, 1.0]
    assert any("above 1: raise space.lr.high" in text for text in result.pick.warnings)
    high = {"lr": {"low": 1e4, "high": 1e6}}
    result = stabsweep.sweep(space=high, **{**QUADRATIC, "num_trials": 8})
    assert [part["low"] for part in result.config["extended"]] == [1e3, 100.0]
    assert "even the lowest rate, 100, failed. Go lower" in result.pick.reason


def test_all_rows_get_the_new_part():
    space = {**BELOW, "momentum": [0.0, 0.9]}
    given = {**QUADRATIC, "optimizer": "sgd", "num_trials": 32}
    rows = stabsweep.sweep(space=space, **given).region.rows
    for row, edge in zip(rows, (2.0, 3.8), strict=True):
        assert row.edge.status == "found" and row.edge.low <= edge <= row.edge.high


# ------------------------------------------------------------------------------ going on


@pytest.mark.parametrize("sampler", EVERY[:-1], ids=str)
def test_a_finished_one_is_recognised_and_an_interrupted_one_is_gone_on_with(
    tmp_path, sampler, monkeypatch
):
    # Pictures take longer than all of these trials.
    monkeypatch.setattr("stabsweep.result.Result.save_report", lambda result: None)
    given = {**QUADRATIC, "space": BELOW, "sampler": sampler, "cohort_size": 2, "seeds": 2}
    whole = stabsweep.sweep(folder=tmp_path / "whole", **given)
    number = len(whole.region.records)
    content = (tmp_path / "whole" / "records.jsonl").read_bytes()
    config = read_config(tmp_path / "whole")
    again = stabsweep.resume(tmp_path / "whole", "off")
    assert (tmp_path / "whole" / "records.jsonl").read_bytes() == content
    assert read_config(tmp_path / "whole") == config and again.pick == whole.pick
    # In the middle of the new part, and as soon as it was begun.
    for after in (18, 16):
        folder = tmp_path / str(after)
        part = stabsweep.sweep(folder=folder, **{**given, "watcher": Impatient(after)})
        assert part.interrupted and 16 <= len(part.region.records) < number
        resumed = stabsweep.resume(folder, "off")
        assert not resumed.interrupted and resumed.config["extended"] == config["extended"]
        assert [r.trial for r in resumed.region.records] == list(range(number))
        if sampler in ("grid", "random", "sobol"):
            assert list(map(told, resumed.region.records)) == list(map(told, whole.region.records))


def test_what_was_lost_of_the_first_part_is_run_again(tmp_path, monkeypatch):
    monkeypatch.setattr("stabsweep.result.Result.save_report", lambda result: None)
    whole = stabsweep.sweep(space=BELOW, folder=tmp_path, **QUADRATIC)
    path = tmp_path / "records.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[3:20]))
    resumed = stabsweep.resume(tmp_path, "off")
    assert list(map(told, resumed.region.records)) == list(map(told, whole.region.records))


def test_a_storage_gets_every_trial_once(tmp_path, monkeypatch):
    monkeypatch.setattr("stabsweep.result.Result.save_report", lambda result: None)
    url = f"sqlite:///{tmp_path / 'copy.db'}"
    for sampler in ("grid", "boundary"):
        folder = tmp_path / sampler
        result = stabsweep.sweep(
            space=BELOW, folder=folder, storage=url, **{**QUADRATIC, "sampler": sampler}
        )
        stabsweep.resume(folder, "off", url)
        name = f"{folder.parent.name}/{sampler}"
        trials = optuna.load_study(study_name=name, storage=url).trials
        assert sorted(t.user_attrs["trial"] for t in trials) == list(
            range(len(result.region.records))
        )


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["grid", "boundary"])
def test_a_process_that_is_killed_in_the_new_part_is_gone_on_with(tmp_path, sampler):
    words = [
        "model=vector", "task=quadratic", "task.eigenvalues=[1.0]", "optimizer=sgd", "space=lr",
        "optimizer.momentum=0.0", "space.lr.low=0.01", "space.lr.high=1", "horizon=200",
        f"sampler={sampler}", "num_trials=16", "seeds=1", "engine.cohort_size=1", "progress=off",
        "precision=fp64", "device=cpu", "confirm=false", "stress=false", "curvature=false",
    ]  # fmt: skip
    whole, folder = tmp_path / "whole", tmp_path / "killed"
    assert main([*words, f"hydra.run.dir={whole}"]) == 0
    path = folder / "records.jsonl"
    command = [sys.executable, "-m", "stabsweep", *words, f"hydra.run.dir={folder}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        end = time.monotonic() + 300
        while not path.exists() or path.read_bytes().count(b"\n") < 18:
            assert time.monotonic() < end
            time.sleep(0.01)
        process.kill()
    known = len(read_records(folder))
    assert 18 <= known < 24 and read_config(folder)["extended"] == [{"low": 1.0, "high": 10.0}]
    assert stabsweep.load(folder).region.space.axes["lr"].high == 10.0
    assert main(["resume", str(folder), "progress=off"]) == 0
    ours, theirs = read_records(folder), read_records(whole)
    assert [r.trial for r in ours] == list(range(24)) == [r.trial for r in theirs]
    assert read_config(folder) == read_config(whole) or sampler == "boundary"
    # But for how fast it went.
    ours_said, theirs_said = (
        [note for note in read_notes(where) if not note.startswith("engine traced")]
        for where in (folder, whole)
    )
    assert ours_said == theirs_said
    if sampler == "grid":
        assert list(map(told, ours)) == list(map(told, theirs))
        assert (folder / "pick.yaml").read_text() == (whole / "pick.yaml").read_text()
