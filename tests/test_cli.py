from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from stabsweep.cli import main
from stabsweep.store import read_records, read_trace

TINY = [
    "model=mlp",
    "model.width=8",
    "model.depth=2",
    "horizon=20",
    "space=lr",
    "num_trials=8",
    "seeds=1",
    "engine.cohort_size=4",
    "progress=off",
    "device=cpu",
]


def run(words, folder=None):
    """Runs the command in this process; `folder` is where its results go."""
    return main([*words, *([f"hydra.run.dir={folder}"] if folder else [])])


def start(words, **kwargs):
    """Starts the command as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "stabsweep", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **kwargs,
    )


def wait_for_records(path, at_least, seconds=60):
    """Waits until a running sweep has recorded so many trials."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if path.exists() and path.read_bytes().count(b"\n") >= at_least:
            return
        time.sleep(0.01)
    raise AssertionError(f"no {at_least} records within {seconds} s")


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A finished sweep's folder."""
    folder = tmp_path_factory.mktemp("swept") / "run"
    assert run([*TINY, "sampler=grid", "space.lr.high=1", "horizon=60"], folder) in (0, 1)
    return folder


def test_a_sweep_writes_everything_that_it_promises(swept):
    names = {path.name for path in swept.iterdir()}
    assert names == {
        "config.yaml",
        "environment.json",
        "map.png",
        "map.svg",
        "notes.txt",
        "pick.yaml",
        "proofs.jsonl",
        "records.jsonl",
        "report.html",
        "theory.yaml",
        "traces.npy",
        "trials.csv",
    }
    records = read_records(swept)
    assert len(records) == 8
    for record in records:
        assert read_trace(swept, record).shape == (5, record.steps)
    assert json.loads((swept / "environment.json").read_text())["versions"]["torch"]


def test_the_answer_is_printed_with_its_evidence(tmp_path, capsys):
    code = run([*TINY, "space.lr.high=1", "horizon=60"], tmp_path / "run")
    out = capsys.readouterr().out
    pick = yaml.safe_load((tmp_path / "run" / "pick.yaml").read_text())
    assert code == (0 if pick["status"] == "ok" else 1)
    for word in ("sgd on mlp", "edge", "Trials", "Pruned", "Engine", "Files", "map.png"):
        assert word in out


@pytest.mark.parametrize("form, read", [("json", json.loads), ("yaml", yaml.safe_load)])
@pytest.mark.parametrize("verb", ["report", "pick", "resume"])
def test_every_verb_prints_json_and_yaml(swept, capsys, verb, form, read):
    words = [verb, str(swept), f"format={form}"]
    code = main(words + (["progress=off"] if verb == "resume" else []))
    answer = read(capsys.readouterr().out)
    pick = answer if verb == "pick" else answer["pick"]
    assert code == (0 if pick["status"] == "ok" else 1)


def test_samplers_and_pruners_of_optunas_are_named_by_their_target(tmp_path):
    words = ["sampler=optuna", "sampler.target=optuna.samplers:TPESampler", "sampler.seed=3"]
    words += ["+sampler.args.n_startup_trials=4", "pruner=optuna"]
    words += ["pruner.target=optuna.pruners:MedianPruner", "+pruner.args.n_startup_trials=2"]
    assert run([*TINY, "num_trials=7", *words], tmp_path / "run") in (0, 1)
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    target, args = "optuna.samplers:TPESampler", {"n_startup_trials": 4}
    assert config["sampler"] == {"name": "optuna", "target": target, "args": args}
    assert config["sampler_seed"] == 3 and config["num_planned"] == 7
    assert len(read_records(tmp_path / "run")) == 7
    assert main(["resume", str(tmp_path / "run"), "progress=off"]) in (0, 1)


def test_a_config_that_was_edited_by_hand_is_read_or_answered_in_one_line(swept, tmp_path, capsys):
    folder = shutil.copytree(swept, tmp_path / "run")
    text = (folder / "config.yaml").read_text()
    for margin, code in (("2e-1", 0), ("2E-1", 0), ("0.2", 0), ("wide", 2), ("-1", 2), ("", 2)):
        edited = text.replace("margin_decades: 0.2", f"margin_decades: {margin}")
        (folder / "config.yaml").write_text(edited)
        for verb in ("pick", "report"):
            assert main([verb, str(folder)]) == code, (verb, margin)
        error = capsys.readouterr().err
        assert error.count("\n") == (0 if code == 0 else 2)
        assert code == 0 or "margin_decades=" in error
    (folder / "config.yaml").write_text(text.replace("num_planned: 8", "num_planned: many"))
    assert main(["pick", str(folder)]) == 2
    assert "num_planned='many' is not allowed" in capsys.readouterr().err


def test_report_writes_a_papers_figures_beside_its_own(swept, tmp_path, capsys):
    folder = shutil.copytree(swept, tmp_path / "run")
    assert main(["report", str(folder), "figures=paper", "width=triple"]) == 2
    assert "width='triple' is not known: use one of double, single" in capsys.readouterr().err
    assert not (folder / "paper").exists()
    assert main(["report", str(folder), "figures=paper", "width=double"]) == 0
    names = ("map", "loss_by_lr", "traces", "verdicts")
    written = {f"{name}.{form}" for name in names for form in ("pdf", "svg", "png")}
    assert {path.name for path in (folder / "paper").iterdir()} == {*written, "captions.txt"}
    said = f"{folder}/paper/ map loss_by_lr traces verdicts (pdf, svg, png) captions.txt"
    assert said in capsys.readouterr().out


def test_the_pick_can_be_pasted_into_other_commands(swept, capsys):
    assert main(["pick", str(swept), "format=overrides"]) == 0
    overrides = capsys.readouterr().out.split()
    assert overrides[0].startswith("lr=") and "optimizer=sgd" in overrides
    assert main(["pick", str(swept), "format=flags"]) == 0
    flags = capsys.readouterr().out.split()
    assert flags[0].startswith("--lr=") and all(flag.startswith("--") for flag in flags)


def test_judge_tells_and_saves(swept, tmp_path, capsys):
    folder = shutil.copytree(swept, tmp_path / "run")
    first = (folder / "records.jsonl").read_bytes()
    assert main(["judge", str(folder)]) == 0
    assert "0 of 8 verdicts changed, judged with today's thresholds" in capsys.readouterr().out
    words = ["judge", str(folder), "learned=0.9"]
    assert main([*words, "format=json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["changed"] and not answer["saved"]
    assert (folder / "records.jsonl").read_bytes() == first
    assert main([*words, "save=true", "format=yaml"]) == 0
    answer = yaml.safe_load(capsys.readouterr().out)
    assert answer["saved"] and Path(answer["kept"]).read_bytes() == first
    assert main(["report", str(folder)]) == main(["pick", str(folder)]) == 1
    (folder / "traces.npy").unlink()
    assert main(["judge", str(folder)]) == 1
    assert "8 trials as before: without a trace" in capsys.readouterr().out


def test_compare_tells_and_draws_only_where_it_is_told_to(swept, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["compare", str(swept), str(swept)]) == 0
    assert "out=DIR writes" in capsys.readouterr().out and not list(tmp_path.iterdir())
    assert main(["compare", str(swept), str(swept), "out=drawn"]) == 0
    names = ("compare.html", "compare.png", "compare.svg")
    assert " ".join(f"drawn/{name}" for name in names) in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "drawn").iterdir()) == list(names)
    for form, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        assert main(["compare", str(swept), str(swept), f"format={form}"]) == 0
        assert read(capsys.readouterr().out)["rows"][0]["says"] == "not distinguishable"
    empty = shutil.copytree(swept, tmp_path / "empty")
    (empty / "records.jsonl").write_text("")
    assert main(["compare", str(swept), str(empty)]) == 1
    config = yaml.safe_load((empty / "config.yaml").read_text())
    config["space"]["clip_norm"] = [1.0]
    (empty / "config.yaml").write_text(yaml.safe_dump(config))
    assert main(["compare", str(swept), str(empty)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "same axes" in error


def test_no_safe_rate_is_exit_code_1(tmp_path, capsys):
    words = [*TINY, "optimizer=sgd", "space.lr.low=1e4", "space.lr.high=1e6"]
    assert run(words, tmp_path / "run") == 1
    assert "Nothing is stable" in " ".join(capsys.readouterr().out.split())
    assert main(["pick", str(tmp_path / "run"), "format=overrides"]) == 1


QUADRATIC = ["model=vector", "optimizer=sgd", "optimizer.momentum=0", "horizon=60", "device=cpu"]


@pytest.mark.parametrize(
    ("lr", "code", "status", "words"),
    [
        (0.4, 0, "safe", "It holds up to 4x"),
        (0.8, 0, "safe", "It holds up to 2x and fails at 4x"),
        (1.7, 1, "not safe", "It holds at 1x and fails at 1.5x"),
        (3, 1, "not safe", "All 3 seeds failed at 1x"),
    ],
)
def test_a_rate_is_checked_against_an_edge_that_is_known(
    tmp_path, capsys, monkeypatch, lr, code, status, words
):
    monkeypatch.chdir(tmp_path)
    assert main(["check", f"lr={lr}", *QUADRATIC, "progress=off"]) == code
    out = " ".join(capsys.readouterr().out.split())
    assert f"sgd on vector: lr={lr} is {status}" in out and words in out
    assert list(tmp_path.iterdir()) == []


def test_a_check_that_cannot_tell_is_exit_code_3_and_is_kept_where_it_is_told_to(tmp_path, capsys):
    folder = tmp_path / "run"
    words = ["check", "lr=1e-9", "model=mlp", "model.width=8", "horizon=20", "seeds=[1,2]"]
    words += [f"out={folder}", "progress=off", "device=cpu"]
    for form, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        assert main([*words, f"format={form}"]) == 3
        answer = read(capsys.readouterr().out)
        assert answer["status"] == "undecided" and answer["steps"][0]["trials"] == 2
    assert (folder / "map.png").exists() and len(read_records(folder)) == 8


def test_what_a_pick_prints_can_be_checked(swept, capsys):
    assert main(["pick", str(swept), "format=overrides"]) == 0
    words = capsys.readouterr().out.split()
    more = [word for word in TINY if word.split("=")[0] not in ("space", "num_trials")]
    assert main(["check", *words, *more, "horizon=60"]) in (0, 3)
    assert main(["check", "--help"]) == 0
    assert "stabsweep check lr=RATE" in capsys.readouterr().out


BAD = {
    "horizn=3": "horizon",
    "model=mpl": "mlp",
    "model.dpeth=3": "model.dpeth",
    "model.depth=0": "model.depth=0",
    "horizon=abc": "horizon='abc'",
    "horizon=1": "horizon=1",
    "num_trials=0": "num_trials=0",
    "space.lr.low=0": "space.lr.low=0",
    "space.lr.low=nan": "space.lr.low=nan",
    "space.lr.low=abc": "space.lr.low='abc'",
    "space.lr.low=20": "space.lr is empty",
    "space=lr_cilp": "lr_clip",
    "+space.clip_norm=[]": "space.clip_norm.values",
    "+space.beta9=[1]": "beta9",
    "clip_norm=-1": "clip_norm=-1",
    "warmup_steps=20": "horizon=20",
    "optimizer=adamm": "adamw",
    "+optimizer.momentum=2": "momentum",
    "task=nope": "digits",
    "device=cuda:99": "cuda:99",
    "device=xpu9": "xpu9",
    "seeds=0": "seeds=0",
    "schedule=cosin": "cosine",
    "init=xavir": "xavier",
    "sampler=gird": "grid",
    "sampler=optuna": "sampler.target=module:attribute",
    "pruner=optuna": "pruner.target=module:attribute",
    "pruner=divergense": "divergence",
    "+pruner.target=x:y": "pruner key='target'",
    "+sampler.target=x:y": "sampler key='target'",
    "storage=copy.db": "storage='copy.db'",
    "storage=sqlit:///copy.db": "sqlite:///FILE",
    "engine=cohrt": "cohort",
    "engine.cohort_size=0": "cohort_size=0",
    "executor=proces": "process",
    "executor.workers=0": "workers=0",
    "+executor.threads=2": "executor key='threads'",
    "precision=float16": "fp16",
    "margin_decades=-1": "margin_decades=-1",
    "format=xml": "json",
    "progress=loud": "plain",
    # what Hydra itself would answer with a traceback, several lines or a riddle
    "+x=1": "key='x' is not known: use one of batch_size",
    "+lr=1": "as an axis it is space.lr",
    "+seed=3": "did you mean seeds?",
    "model=null": "model='null' is not known: use one of fractal, mlp",
    "task=5": "task='5' is not known: use one of adding",
    "optimizer=true": "optimizer='true' is not known: use one of adam",
    "space=1e3": "space='1e3' is not known: use one of lr",
    "model=": "model='' is not known: use one of fractal, mlp",
    "experiment=": "experiment='' is not known: use one of clip_hides",
    "+experiment=clip_hides": "leave the + away, experiment=clip_hides",
    "=3": "key='=3' is not known",
    "name='${nope}'": "name: Interpolation key 'nope' not found",
    "name='${oc.env:NOPE}'": "Environment variable 'NOPE' not found",
    "name=../../x": "name='../../x' is not allowed: give one word",
    "name='a/b'": "hydra.run.dir=DIR",
    "name='${device}/b'": "name='cpu/b' is not allowed",
    "name=": "name='' is not allowed",
    "name=..": "name='..' is not allowed",
    "init=spectral(1.5)": "put the value in quotes, \"init='spectral(1.5)'\"",
    "space.init.values=[default,normal(0.02)]": "\"space.init.values=[default,'normal(0.02)']\"",
    "name=Größe": "\"name='Größe'\"",
    "lr_scales={'*': 1}": "look at its quotes",
    "name=a=b": "\"name='a=b'\"",
    "batch_size=1,": "batch_size=1, cannot be read",
    "format=null": "format=null is not allowed",
    "schedule=null": "schedule=null is not allowed",
    "horizon=1,2": "horizon=1,2 is several values: [a,b] is a list, -m sweeps them",
    "horizon=1.5": "horizon='1.5' is not a whole number",
    "+sampler.seed=3": "sampler.seed is there already: leave the + away",
    "space.lr=[]": "space.lr.values",
    "space.lr.values=[0]": "space.lr.values=0 is out of range",
    "space.lrr=[1]": "axis='lrr' is not known",
    # what is too large to be meant
    "num_trials=1e23": "num_trials=99999999999999991611392 is not allowed: use a whole number >= 1",
    "seeds=9999999999999": "seeds=9999999999999 is not allowed",
    "seeds=[0,99999999999999999999]": "seeds=99999999999999999999 is not allowed",
    "horizon=1e13": "horizon=10000000000000 is not allowed",
    "space.lr.high=1e308": "space.lr.high=1e+308 is out of range: use a number that float32 holds",
    "space.lr.low=1e-320": "space.lr.low=1e-320 is out of range: use a number that float32 holds",
    "optimizer.weight_decay=1e300": "optimizer.weight_decay=1e+300 is out of range",
    "clip_norm=1e300": "clip_norm=1e+300 is out of range",
    "init_gain=1e300": "init_gain=1e+300 is out of range",
    "margin_decades=1e308": "margin_decades=1e+308 is not allowed",
    "model.width=1000000000000": "memory",
    "model.width=99999999999999999999999": "model.width=99999999999999999999999 is not allowed",
}


@pytest.mark.parametrize("word", BAD)
def test_bad_input_is_one_clear_line_and_no_folder(tmp_path, capsys, word):
    folder = tmp_path / "deep" / "run"
    words = [w for w in TINY if w.split("=")[0] != word.split("=")[0]]
    assert run([*words, word], folder) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1 and captured.err.startswith("stabsweep: ")
    assert BAD[word] in captured.err
    assert list(tmp_path.iterdir()) == []


def test_what_says_clearly_what_it_means_is_understood(tmp_path):
    words = [word for word in TINY if not word.startswith(("horizon", "num_trials"))]
    words += ["space.lr=[1e-2,0.1]", "+space.clip_norm=[1,null]", "horizon=2e1", "num_trials=8.0"]
    assert run([*words, "experiment=null"], tmp_path / "run") in (0, 1)
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["space"]["lr"]["values"] == [0.01, 0.1] and config["horizon"] == 20
    assert {r.lr for r in read_records(tmp_path / "run")} == {0.01, 0.1}
    assert {r.point["clip_norm"] for r in read_records(tmp_path / "run")} == {1.0, None}


@pytest.mark.parametrize(
    "words, part",
    [
        (["sweeep"], "verb='sweeep'"),
        (["pick"], "usage: stabsweep pick DIR"),
        (["pick", "{tmp}/nowhere"], "is no folder"),
        (["pick", "{tmp}"], "is no result folder"),
        (["resume", "{tmp}"], "is no result folder"),
        (["report", "{tmp}", "formt=json"], "did you mean format?"),
        (["report", "{tmp}", "format=overrides"], "use one of json, text, yaml"),
        (["report", "{tmp}", "figures=papr"], "did you mean paper?"),
        (["report", "{tmp}", "width=double"], "width=double is of figures=paper: give both"),
        (["compare", "{tmp}"], "usage: stabsweep compare A B"),
        (["compare", "{tmp}", "{tmp}"], "is no result folder"),
        (["judge"], "usage: stabsweep judge DIR"),
        (["judge", "{tmp}"], "is no result folder"),
        (["judge", "{tmp}", "lerned=1"], "did you mean learned?"),
        (["judge", "{tmp}", "learned=much"], "learned='much' is not allowed"),
        (["judge", "{tmp}", "save=yes"], "use one of false, true"),
        (["verify", "now"], "usage: stabsweep verify"),
        (["check"], "lr='' is not a number: give lr=RATE"),
        (["check", "lr=small"], "lr='small' is not a number"),
        (["check", "lr=0"], "lr=0.0 is out of range"),
        (["check", "lr=nan"], "lr=nan is out of range"),
        (["check", "0.1"], "usage: stabsweep check lr=RATE"),
        (["check", "+lr=0.1"], "usage: stabsweep check lr=RATE"),
        (["check", "lr=0.1", "-m"], "usage: stabsweep check lr=RATE"),
        (["check", "lr=0.1", "space.lr.low=1"], "space.lr.low has no effect on a check"),
        (["check", "lr=0.1", "hydra.run.dir=x"], "hydra.run.dir has no effect on a check"),
        (["check", "lr=0.1", "model=mpl"], "did you mean mlp?"),
        (["check", "lr=0.1", "horizn=3"], "did you mean horizon?"),
        (["check", "lr=0.1", "horizon=1"], "horizon=1 is not allowed"),
        (["check", "lr=0.1", "format=xml"], "use one of json, text, yaml"),
    ],
)
def test_bad_words_are_one_clear_line(tmp_path, capsys, words, part):
    assert main([word.format(tmp=tmp_path) for word in words]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and part in captured.err


def test_a_folder_that_cannot_be_made_is_bad_input(tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    assert run(TINY, tmp_path / "file" / "run") == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_folder_with_another_sweep_is_left_alone(swept, capsys):
    before = (swept / "records.jsonl").read_bytes()
    assert run([*TINY, "horizon=30"], swept) == 2
    assert "differs in horizon" in capsys.readouterr().err
    assert (swept / "records.jsonl").read_bytes() == before


def test_a_disk_that_fills_up_loses_nothing(tmp_path, capsys, monkeypatch):
    from stabsweep.store import Store

    append = Store.append

    def full(self, record):
        if (self.folder / "records.jsonl").read_bytes().count(b"\n") == 3:
            raise OSError(28, "No space left on device")
        append(self, record)

    monkeypatch.setattr(Store, "append", full)
    assert run(TINY, tmp_path / "run") == 2
    error = capsys.readouterr().err
    assert "No space left on device" in error and "stabsweep resume" in error
    monkeypatch.undo()
    assert len(read_records(tmp_path / "run")) == 3
    assert main(["resume", str(tmp_path / "run"), "progress=off"]) in (0, 1)
    assert len(read_records(tmp_path / "run")) == 8


@pytest.mark.slow
def test_a_killed_sweep_resumes_to_the_same_map(tmp_path):
    words = [*TINY, "sampler=grid", "num_trials=60", "horizon=40", "space.lr.high=100"]
    assert run(words, tmp_path / "whole") in (0, 1)
    folder = tmp_path / "killed"
    for kill_at in (6, 25):
        verb = ["resume", str(folder), "progress=off"] if folder.exists() else None
        process = start(verb or [*words, f"hydra.run.dir={folder}"])
        wait_for_records(folder / "records.jsonl", kill_at)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        with open(folder / "records.jsonl", "ab") as file:
            file.write(b'{"trial": 59, "point": {"lr"')  # as if killed in the middle of a line
        assert len(read_records(folder)) < 60
    assert main(["resume", str(folder), "progress=off"]) in (0, 1)
    lines = (folder / "records.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["trial"] for line in lines) == list(range(60))
    whole = tmp_path / "whole"
    for ours, theirs in zip(read_records(folder), read_records(whole), strict=True):
        curves = read_trace(folder, ours), read_trace(whole, theirs)
        assert np.array_equal(*curves, equal_nan=True)
        # Where its curves stand in the file depends on which trial ended first.
        same = {"seconds": 0.0, "trace": None}
        assert replace(ours, **same) == replace(theirs, **same)
    assert (folder / "pick.yaml").read_text() == (tmp_path / "whole" / "pick.yaml").read_text()


@pytest.mark.slow
def test_ctrl_c_ends_with_a_report_and_130(tmp_path):
    folder = tmp_path / "run"
    words = [*TINY, "sampler=grid", "num_trials=2000", f"hydra.run.dir={folder}"]
    process = start(words, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    wait_for_records(folder / "records.jsonl", 20)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in error
    assert f"stabsweep resume {folder}" in out and "of 2000 trials" in " ".join(out.split())
    assert (folder / "map.png").exists() and (folder / "pick.yaml").exists()


def test_help_is_the_same_however_it_is_asked_for_and_leaves_nothing(tmp_path):
    program = Path(sys.executable).with_name("stabsweep")
    commands = [[sys.executable, "-m", "stabsweep", "--help"]]
    commands += [[str(program), "--help"]] if program.exists() else []
    texts = [subprocess.check_output(command, cwd=tmp_path, text=True) for command in commands]
    assert len(set(texts)) == 1 and "stabsweep resume DIR" in texts[0]
    assert list(tmp_path.iterdir()) == []


def test_multirun_sweeps_every_model(tmp_path, capsys):
    words = [w for w in TINY if not w.startswith("model")]
    words += ["-m", "model=mlp,transformer", "horizon=3", f"hydra.sweep.dir={tmp_path}"]
    assert main(words) in (0, 1)
    assert len(list(tmp_path.glob("*/map.png"))) == 2


def test_a_sweep_of_a_multirun_that_cannot_be_run_stops_no_other(tmp_path, capsys):
    words = [word for word in TINY if not word.startswith("horizon")]
    assert main([*words, "-m", "horizon=10,1,12", f"hydra.sweep.dir={tmp_path}"]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1 and "horizon=1 is not allowed" in captured.err
    horizons = [
        yaml.safe_load(path.read_text())["horizon"] for path in tmp_path.glob("*/config.yaml")
    ]
    assert sorted(horizons) == [10, 12]


def test_ctrl_c_in_one_sweep_of_a_multirun_begins_no_other(tmp_path, monkeypatch):
    from stabsweep.run import Run

    begun = []

    def interrupted(self):
        begun.append(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "run", interrupted)
    words = [w for w in TINY if not w.startswith("model")]
    words += ["-m", "model=mlp,transformer", f"hydra.sweep.dir={tmp_path}"]
    assert main(words) == 130
    assert len(begun) == 1
