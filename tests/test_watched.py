from __future__ import annotations

import json
import math

import pytest
import yaml

from stabsweep.cli import main
from stabsweep.errors import BadInput
from stabsweep.watched import load_run
from tests.runs import DONE, falling, line, train, write

FILES = {"run.png", "run.svg", "report.html"}
BAD = {"loss": math.nan, "grad_norm": math.nan}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train(tmp_path_factory.mktemp("run") / "a")


def good(num=60):
    return [line(n, loss=v) for n, v in enumerate(falling(num))]


def test_report_of_a_run_tells_draws_and_exits_with_0(trained, capsys):
    assert main(["report", str(trained)]) == 0
    # Wherever the lines break, which depends on the folder's name.
    out = " ".join(capsys.readouterr().out.split())
    for expected in (
        "adamw on mlp: converged at 0.",
        "Verdict converged. Loss ended at",
        "not finite",
        "Bad non-finite at attempt 40 (loss nan), 2 in all",
        "Took 2 s",
        f"Files {trained}/ report.html run.png run.svg",
    ):
        assert expected in out
    assert max(map(len, out.splitlines())) <= 80 or str(trained) in out
    assert FILES <= {path.name for path in trained.iterdir()}
    assert "converged at 0." in (trained / "report.html").read_text()


def test_report_of_a_run_as_plain_values(trained, capsys):
    assert main(["report", str(trained), "format=json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert main(["report", str(trained), "format=yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == told
    assert told["verdict"] == "converged" and told["ok"] and told["ended"]
    assert told["outcomes"]["skipped_not_finite"] == 2 and told["attempts"] == 120
    assert sum(told["outcomes"].values()) == 120
    (skipped,) = [event for event in told["events"] if event["kind"] == "not_finite"]
    assert (skipped["attempt"], skipped["last"]) == (40, 41)
    assert skipped["message"] == "batch[0] has a NaN."
    assert [layer["name"] for layer in told["layers"]][-1] == "readout"


def test_a_run_that_diverged_or_learned_and_was_stopped_is_not_ok(tmp_path, capsys):
    lines = [line(n, loss=2.0 * 1.5**n) for n in range(60)]
    diverged = write(tmp_path / "diverged", lines)
    assert main(["report", str(diverged)]) == 1
    assert "Verdict  diverged." in capsys.readouterr().out
    stop = line(60, 60, "stopped", **BAD)
    stop["events"] = [{"kind": "stopped", "message": "Ten skips in a row."}]
    stopped = write(tmp_path / "stopped", [*good(), stop], summary={"stopped": "Ten skips."})
    assert main(["report", str(stopped)]) == 1
    out = capsys.readouterr().out
    assert out.startswith("adamw on mlp: stopped at attempt 60, diverged at step 60")
    assert "Note     Stopped: Ten skips." in out


def test_a_killed_run_is_said_to_be_one_and_how_to_go_on_where_that_is_possible(tmp_path):
    folder = write(tmp_path / "run", good(), summary=None)
    with open(folder / "steps.jsonl", "a") as file:
        file.write('{"attempt": 60, "ste')
    (folder / "environment.json").write_text('{"torn": ')
    found = load_run(folder)
    assert found.is_ok and not found.go_on and found.environment == {}
    assert "There is no summary" in found.summary() and "Go on" not in found.summary()
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "step_50.pt").write_bytes(b"")
    assert f"Go on    stabsweep train resume={folder}, or guard.resume()" in " ".join(
        load_run(folder).summary().split("\n         ")
    )


def test_without_a_step_there_is_no_verdict_and_it_is_not_ok(tmp_path):
    lines = [line(n, 0, "skipped_not_finite", **BAD) for n in range(5)]
    found = load_run(write(tmp_path / "run", lines))
    assert found.judged is None and not found.is_ok
    assert "Verdict  none: no step was made" in found.summary()
    assert found.as_dict()["verdict"] is None
    json.dumps(found.as_dict(), allow_nan=False)


def test_the_judge_is_that_of_a_sweep_whatever_the_summary_says(tmp_path):
    folder = write(tmp_path / "run", good(), summary=DONE | {"verdict": "diverged"})
    assert load_run(folder).as_dict()["verdict"] == "converged"


def test_what_is_no_run_is_one_line(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert main(["report", str(tmp_path / "empty")]) == 2
    err = capsys.readouterr().err
    assert "neither the config.yaml of a sweep nor the steps.jsonl of a guarded run" in err
    assert err.count("\n") == 1
    assert main(["report", str(tmp_path / "nowhere")]) == 2
    assert "give that of a sweep or of a guarded run" in capsys.readouterr().err
    with pytest.raises(BadInput, match="without an attempt"):
        load_run(write(tmp_path / "none", []))
    broken = write(tmp_path / "broken", good())
    (broken / "run.yaml").write_text("- a list\n")
    with pytest.raises(BadInput, match="run.yaml is not that of a run"):
        load_run(broken)
    (broken / "run.yaml").write_text("blind_loss: high\n")
    with pytest.raises(BadInput, match="blind_loss='high' is not a number"):
        load_run(broken)
