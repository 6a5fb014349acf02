"""The verb `env` as a user types it, in processes of their own where it matters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from stabsweep.cli import main
from tests.environment.prefixes import Prefix, snapshot

ROOT = Path(__file__).resolve().parents[1]


def run(*words: str, first: Path | None = None, **variables: str) -> subprocess.CompletedProcess:
    """Runs `stabsweep env ...` in a process whose `sys.path` begins with a folder."""
    path = [str(folder) for folder in (first, ROOT) if folder]
    return subprocess.run(
        [sys.executable, "-m", "stabsweep", "env", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Path]:
    """Two snapshots that differ in the number of threads, the second in a folder of results."""
    one, results = tmp_path / "one.json", tmp_path / "results"
    results.mkdir()
    one.write_text(json.dumps(snapshot(threads={"torch": 1})))
    (results / "environment.json").write_text(json.dumps(snapshot(threads={"torch": 4})))
    return one, results


@pytest.mark.parametrize("broken", ["torch", "numpy"])
def test_it_answers_where_a_library_does_not_load(broken: str, tmp_path: Path) -> None:
    site = Prefix(tmp_path / "env").pip(broken, "9.9.9").site
    (site / broken / "__init__.py").write_text(
        "raise ImportError('libnope.so: cannot open shared object file\\n\\nread the manual')\n"
    )
    file = tmp_path / "out.json"
    done = run("snapshot", "-o", str(file), first=site, STABSWEEP_API_TOKEN="hunter2")
    assert done.returncode == 0, done.stderr
    assert "does not load: ImportError: libnope.so" in done.stdout
    text = file.read_text()
    assert "hunter2" not in text and "STABSWEEP_API_TOKEN" not in text
    assert "libnope.so" in json.loads(text)[broken]["error"]
    # The file of one machine is checked on another, with the same answer.
    done = run("check", str(file))
    assert done.returncode == 1, done.stderr
    line = done.stdout.splitlines()[1]
    assert line.startswith(f"error    {broken}: 9.9.9 (pip) does not load from {site.resolve()}")
    assert "libnope.so" in line and "->" in line
    if broken == "numpy":
        assert all(
            "mend numpy first" in told
            for told in done.stdout.splitlines()
            if "error    torch" in told
        )


def test_pip_over_conda_is_found_by_a_process_that_runs_in_it(tmp_path: Path) -> None:
    prefix = Prefix(tmp_path / "env")
    prefix.conda("pytorch", "1.11.0", "py3.9_cuda11.3_cudnn8.2.0_0").pip("torch", "2.4.1")
    (prefix.site / "sitecustomize.py").write_text(
        f"import sys; sys.prefix = {str(prefix.folder)!r}"
    )
    done = run("check", "format=json", first=prefix.site)
    assert done.returncode == 1, done.stderr
    first = json.loads(done.stdout)["findings"][0]
    assert (first["level"], first["what"]) == ("error", "torch")
    assert first["message"] == "mixed: conda 1.11.0 (cuda) / pip 2.4.1, pip wins"


def test_diff_takes_files_and_folders_and_its_exit_code_says_whether_numbers_may_differ(
    saved: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    one, results = map(str, saved)
    assert main(["env", "diff", one, results]) == 1
    out = capsys.readouterr().out
    assert f"a  {one} (2026-01-01)" in out
    assert "threads  1 / 4" in out and "7th digit" in out
    assert main(["env", "diff", one, one]) == 0
    assert "Nothing differs" in capsys.readouterr().out
    assert main(["env", "diff", one, results, "format=yaml"]) == 1
    assert yaml.safe_load(capsys.readouterr().out)["numeric"][0]["b"] == "4"


def test_check_looks_at_a_snapshot_in_every_format(
    saved: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["env", "check", str(saved[1])]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "ok: nothing to mend"
    for form, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        assert main(["env", "check", str(saved[0]), f"format={form}"]) == 0
        assert read(capsys.readouterr().out)["ok"] is True


def test_snapshot_prints_a_page_and_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["env", "snapshot", "out=s.json"]) == 0
    page = capsys.readouterr().out
    for word in ("Python", "CPU", "Threads", "torch", "OpenMP", "TF32", "Packages", "s.json"):
        assert word in page
    assert main(["env", "snapshot", "format=json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["format"] == json.loads(Path("s.json").read_text())["format"] == 2
    assert main(["env", "diff", "s.json", "s.json"]) == 0


def test_export_then_check_then_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["env", "export", "locks"]) == 0
    assert "locks/requirements.txt:" in capsys.readouterr().out
    assert main(["env", "export", "locks"]) == 2
    assert "force=true" in capsys.readouterr().err
    assert main(["env", "check", "lock=locks"]) == 0
    assert "requirements.txt: what runs matches all" in capsys.readouterr().out
    path = Path("locks/requirements.txt")
    path.write_text(path.read_text().replace("numpy==", "numpy==0.0."))
    assert main(["env", "check", "lock=locks"]) == 0, "a warning is no error"
    assert "warning  requirements.txt: what runs does not match" in capsys.readouterr().out
    assert main(["env", "export", "locks", "--force"]) == 0


def test_audit_runs_the_tool_on_the_path(tmp_path: Path) -> None:
    told = {"dependencies": [{"name": "numpy", "version": "2", "vulns": [{"id": "GHSA-7"}]}]}
    tool = tmp_path / "pip-audit"
    tool.write_text(f"#!{sys.executable}\nprint({json.dumps(told)!r})\nraise SystemExit(1)\n")
    tool.chmod(0o755)
    # A Python with another pip-audit beside it would take that one.
    if Path(sys.executable).with_name("pip-audit").exists():
        pytest.skip("a real pip-audit stands beside Python, and would ask its service")
    done = run("check", "--audit", PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr
    assert "warning  numpy: 2 has 1 known: GHSA-7" in done.stdout


@pytest.mark.parametrize(
    "words, told",
    [
        ([], "usage: stabsweep env snapshot|check|diff|export"),
        (["chek"], "did you mean check?"),
        (["snapshot", "-o"], "-o names no file"),
        (["snapshot", "out=missing/s.json"], "cannot write out=missing/s.json"),
        (["snapshot", "format=xml"], "format='xml'"),
        (["check", "missing.json"], "there is no missing.json"),
        (["check", "."], "holds no environment.json"),
        (["check", "audit=yes"], "audit='yes'"),
        (["check", "x.json", "--audit"], "leave x.json away"),
        (["check", "lock=missing"], "lock=missing is no folder"),
        (["check", "a", "b"], "usage: stabsweep env check"),
        (["diff", "a"], "usage: stabsweep env diff A B"),
        (["export", "force=1"], "force='1'"),
        (["export", "a", "b"], "usage: stabsweep env export"),
    ],
)
def test_what_can_be_mistyped_is_told_in_one_line(
    words: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["env", *words]) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1


def test_help_names_every_sub_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "--help"]) == 0
    assert [line.split()[2] for line in capsys.readouterr().out.splitlines()] == [
        "snapshot",
        "check",
        "diff",
        "export",
        "drift",
    ]
