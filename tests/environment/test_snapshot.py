from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stabsweep.environment import libraries, machine, project, snapshot, variables
from stabsweep.errors import BadInput

PACKAGE = Path(snapshot.__file__).parents[1]
PARTS = (
    "python platform cpu gpu threads torch numpy runtimes switches versions distributions conda "
    "lock variables git"
).split()
SUSPICIOUS = ("TOKEN", "KEY", "SECRET", "PASSWORD", "CREDENTIAL", "AUTH", "PROXY")


def plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(plain(item) for item in value)
    return value is None or type(value) in (bool, int, float, str)


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)
    return done.stdout.decode().strip()


def test_every_part_is_there_plain_and_without_an_error() -> None:
    taken = snapshot.take()
    assert list(taken) == ["format", "time", *PARTS]
    assert plain(taken)
    assert json.loads(json.dumps(taken, allow_nan=False)) == taken
    assert "error" not in json.dumps({part: taken[part] for part in PARTS if part != "git"})


def test_it_agrees_with_the_libraries() -> None:
    import numpy
    import torch

    taken = snapshot.take()
    assert taken["torch"]["version"] == str(torch.__version__)
    assert taken["versions"]["numpy"] == taken["numpy"]["version"] == numpy.__version__
    assert taken["threads"]["torch"] == torch.get_num_threads()
    assert taken["python"]["version"] == sys.version.split()[0]
    assert taken["cpu"]["num_logical"] == os.cpu_count()
    assert taken["gpu"]["cuda_available"] is torch.cuda.is_available()
    if sys.platform == "linux":
        assert taken["cpu"]["model"]


def test_it_sees_the_switches() -> None:
    import torch

    before = snapshot.take()["switches"]
    assert before["deterministic"] is False
    assert before["default_dtype"] == "torch.float32"
    try:
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.set_default_dtype(torch.float64)
        torch.backends.cudnn.benchmark = True
        after = snapshot.take()["switches"]
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_default_dtype(torch.float32)
        torch.backends.cudnn.benchmark = before["cudnn_benchmark"]
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {
        "deterministic",
        "deterministic_warn_only",
        "default_dtype",
        "cudnn_benchmark",
    }


def test_it_tells_listed_variables_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("STABSWEEP_TEST_TOKEN", "hunter2")
    taken = snapshot.take()
    assert taken["variables"]["OMP_NUM_THREADS"] == "3"
    assert "hunter2" not in json.dumps(taken)
    names = [name for name in variables.VARIABLES if any(word in name for word in SUSPICIOUS)]
    assert not names
    monkeypatch.setenv("KMP_DUPLICATE_LIB_OK", "True")
    assert "KMP_DUPLICATE_LIB_OK" not in variables.read(), "set by scikit-learn, not by the user"
    monkeypatch.setenv("KMP_DUPLICATE_LIB_OK", "TRUE")
    assert variables.read()["KMP_DUPLICATE_LIB_OK"] == "TRUE"


@pytest.mark.parametrize("broken", ["torch", "numpy"])
def test_a_library_that_does_not_load_is_recorded_with_its_reason(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = libraries.importlib.import_module

    def failing(name: str) -> object:
        if name == broken:
            raise OSError("libbroken.so: cannot open shared object file")
        return load(name)

    monkeypatch.setattr(libraries.importlib, "import_module", failing)
    taken = snapshot.take()
    assert "libbroken.so" in taken[broken]["error"]
    assert plain(taken)
    assert taken["versions"][broken], "installed all the same"


def test_it_works_in_a_process_without_torch_and_numpy() -> None:
    # A stand-in for the package, whose own __init__ may load torch for its public names.
    code = (
        "import json, sys, types\n"
        "sys.modules.update(torch=None, numpy=None, stabsweep=types.ModuleType('stabsweep'))\n"
        f"sys.modules['stabsweep'].__path__ = [{str(PACKAGE)!r}]\n"
        "from stabsweep.environment import snapshot\n"
        "print(json.dumps(snapshot.take()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    taken = json.loads(done.stdout)
    for part in ("torch", "numpy", "switches", "threads"):
        assert "ModuleNotFoundError" in taken[part]["error"]


def test_the_commit_is_that_of_the_project_one_stands_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    assert snapshot.take()["git"] is None
    git(tmp_path, "init", "-q")
    assert snapshot.take()["git"] == {"commit": None, "dirty": False}
    (tmp_path / "a.txt").write_text("a")
    git(tmp_path, "add", "a.txt")
    git(tmp_path, "commit", "-qm", "a")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert snapshot.take()["git"] == {"commit": head, "dirty": False}
    (tmp_path / "a.txt").write_text("b")
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    assert snapshot.take()["git"] == {"commit": head, "dirty": True}


def test_no_git_or_a_hanging_one_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "git"
    slow.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(60)\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(project, "GIT_TIMEOUT_SECONDS", 0.2)
    assert "TimeoutExpired" in snapshot.take()["git"]["error"]
    slow.unlink()
    assert "FileNotFoundError" in snapshot.take()["git"]["error"]


def test_it_is_fast() -> None:
    snapshot.take()
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        snapshot.take()
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.3


def test_save_writes_what_it_returns_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "environment.json"
    path.write_text("old")
    saved = snapshot.save(path)
    assert json.loads(path.read_text(encoding="utf-8")) == saved
    assert [p.name for p in tmp_path.iterdir()] == ["environment.json"]
    assert snapshot.save(path, {"format": 1}) == {"format": 1}
    with pytest.raises(OSError):
        snapshot.save(tmp_path / "missing" / "environment.json", {})


def test_no_secret_of_the_environment_or_of_a_file_gets_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "MKL_NUM_THREADS_TOKEN", "PIP_INDEX", "OMP_PASSWORD"):
        monkeypatch.setenv(name, "hunter2")
    (tmp_path / "requirements.txt").write_text(
        "--find-links https://me:hunter2@example.org\nx @ https://hunter2@example.org/x.whl\nsix\n"
    )
    (tmp_path / "environment.yml").write_text("channels: [https://h/t/hunter2/c]\nhunter2: [\n")
    monkeypatch.chdir(tmp_path)
    saved = snapshot.save(tmp_path / "out.json")
    assert [entry["file"] for entry in saved["lock"]] == ["environment.yml", "requirements.txt"]
    assert "hunter2" not in (tmp_path / "out.json").read_text()


def test_load_reads_a_file_or_a_folder_and_refuses_the_rest_in_one_line(tmp_path: Path) -> None:
    snapshot.save(tmp_path / "environment.json", {"format": 1, "python": {}})
    assert snapshot.load(tmp_path) == snapshot.load(tmp_path / "environment.json")
    (tmp_path / "empty").mkdir()
    texts = {
        "new.json": '{"format": 99}',
        "list.json": "[1]",
        "torn.json": '{"format": ',
        "b": "\0",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    for name in ("empty", "missing.json", *texts):
        with pytest.raises(BadInput, match=name) as caught:
            snapshot.load(tmp_path / name)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "told, level",
    [
        ("flags\t\t: fpu sse4_2 avx avx2 avx512f", "AVX512"),
        ("flags : fpu sse4_2 avx avx2", "AVX2"),
        ("Features\t: fp asimd sve", "SVE"),
        ("nothing: here", None),
    ],
)
def test_the_vector_level_is_told_without_any_library(
    told: str, level: str | None, tmp_path: Path
) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor : 0\n{told}\n")
    assert machine._vector_level(tmp_path / "cpuinfo") == level
