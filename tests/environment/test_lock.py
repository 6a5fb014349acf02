from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from stabsweep.environment import export, lock
from stabsweep.errors import BadInput
from tests.environment.prefixes import Prefix, snapshot


def pip_made(**versions: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "version": version, "installer": "pip", "folder": "/s"}
        for name, version in versions.items()
    ]


def judged(folder: Path, taken: dict[str, Any]) -> list[tuple[str, str, str]]:
    found = lock.find({**taken, "lock": lock.read(folder, taken)})
    return [(finding.level, finding.what, finding.message) for finding in found]


@pytest.fixture
def taken() -> dict[str, Any]:
    return snapshot(distributions=pip_made(torch="2.4.1+cpu", numpy="2.0.1", rich="13.7", pip="24"))


def test_what_was_exported_matches_what_runs(tmp_path: Path, taken: dict[str, Any]) -> None:
    paths = export.export(tmp_path / "new", taken)
    assert [path.name for path in paths] == ["environment.yml", "requirements.txt"]
    assert judged(tmp_path / "new", taken) == [
        ("info", "environment.yml", "what runs matches all 4 of its versions"),
        ("info", "requirements.txt", "what runs matches all 3 of its versions"),
    ]


def test_the_files_say_what_made_them_and_hold_exact_versions(
    tmp_path: Path, taken: dict[str, Any]
) -> None:
    export.export(tmp_path, taken)
    lines = (tmp_path / "requirements.txt").read_text().splitlines()
    assert lines[0].startswith("# written by `stabsweep env export` on 2026-01-01")
    assert "pip install -r requirements.txt" in lines[1]
    assert lines[2:] == [
        "numpy==2.0.1",
        "rich==13.7",
        "torch==2.4.1  # runs 2.4.1+cpu (a local build: the plain version may be another)",
    ]
    told = yaml.safe_load((tmp_path / "environment.yml").read_text())
    python, pip, rest = told["dependencies"]
    assert (python, pip) == ("python=3.11.7", "pip")
    assert rest == {"pip": ["numpy==2.0.1", "rich==13.7", "torch==2.4.1"]}


def test_every_way_of_drifting_is_named(tmp_path: Path, taken: dict[str, Any]) -> None:
    export.export(tmp_path, taken)
    taken["distributions"] = pip_made(torch="2.4.1+cu121", numpy="2.0.2", six="1.16")
    taken["python"] = {"version": "3.12.1"}
    (level, file, conda), (_, _, pip) = judged(tmp_path, taken)
    assert (level, file) == ("warning", "environment.yml")
    assert "python 3.11.7 (runs 3.12.1)" in conda
    for told in ("torch 2.4.1+cpu (runs 2.4.1+cu121)", "numpy 2.0.1 (runs 2.0.2)", "six"):
        assert told in conda and told in pip
    assert "rich 13.7 (runs not at all)" in pip
    assert "3 of 3 differ" in pip and "1 run that it does not name: six" in pip


def test_it_writes_over_nothing_without_force(tmp_path: Path, taken: dict[str, Any]) -> None:
    (tmp_path / "requirements.txt").write_text("mine\n")
    with pytest.raises(BadInput, match=r"requirements\.txt exists in .*force=true"):
        export.export(tmp_path, taken)
    assert [path.name for path in tmp_path.iterdir()] == ["requirements.txt"]
    assert (tmp_path / "requirements.txt").read_text() == "mine\n"
    export.export(tmp_path, taken, force=True)
    assert "numpy==2.0.1" in (tmp_path / "requirements.txt").read_text()


def test_what_no_index_has_is_a_comment(tmp_path: Path, taken: dict[str, Any]) -> None:
    taken["distributions"] += [
        {"name": "mine", "version": "1", "source": "editable file:///src/mine"},
        {"name": "theirs", "version": "2", "source": "git+https://example.org/x.git@abc"},
    ]
    export.export(tmp_path, taken)
    text = (tmp_path / "requirements.txt").read_text()
    assert "# mine 1: an editable install of file:///src/mine\n" in text
    assert "# theirs 2: installed from git+https://example.org/x.git@abc\n" in text
    assert "# theirs 2" in (tmp_path / "environment.yml").read_text()
    assert {level for level, _, _ in judged(tmp_path, taken)} == {"info"}


def test_conda_s_own_builds_go_to_conda_and_the_rest_to_pip(tmp_path: Path) -> None:
    prefix = Prefix(tmp_path / "env")
    prefix.conda("pytorch", "2.4.1", "cuda120_py311_0", python="torch").conda("xz", "5.2.6", "h1_0")
    prefix.conda("msgpack-python", "1.0", "py_0", python="msgpack").pip("rich", "13.7")
    taken = prefix.snapshot("2.4.1")
    export.export(tmp_path, taken)
    told = yaml.safe_load((tmp_path / "environment.yml").read_text())
    assert told["channels"] == ["conda-forge"]
    assert told["dependencies"] == [
        "msgpack-python=1.0=py_0",
        "pytorch=2.4.1=cuda120_py311_0",
        "xz=5.2.6=h1_0",
        {"pip": ["rich==13.7"]},
    ]
    assert [level for level, _, _ in judged(tmp_path, taken)] == ["info", "info"]
    # The same version in another build is another torch.
    taken["conda"][1]["build"] = "cpu_py311_0"
    taken["conda"].append({"name": "zlib", "version": "1.3", "build": "h_0"})
    (_, _, told), _ = judged(tmp_path, taken)
    assert "pytorch 2.4.1=cuda120_py311_0 (runs 2.4.1)" in told
    assert "1 run that it does not name: zlib" in told


def test_a_hand_written_file_is_held_against_what_runs(
    tmp_path: Path, taken: dict[str, Any]
) -> None:
    (tmp_path / "requirements.txt").write_text(
        "# ours\n-r more.txt\n--hash=x\n-e .\nTorch==2.4.1\nnumpy==2.0.1 \\\n  --hash=sha256:1\n"
        "Rich~=13.0  # for looks\nwinonly==1; sys_platform == 'none'\nx @ https://example.org/x.whl\n"
    )
    told = lock.read(tmp_path, taken)
    assert told == [
        {
            "file": "requirements.txt",
            "ours": False,
            "pinned": 2,
            "loose": 1,
            "differs": [],
            "unlisted": [],
        }
    ]


@pytest.mark.parametrize(
    "spec, is_met",
    [
        ("numpy", True),
        ("numpy=2.0", True),
        ("numpy==2.0", False),
        ("numpy 2.0.1 py311_0", True),
        ("numpy 2.*", True),
        ("numpy>=1.26,<3", True),
        ("conda-forge::numpy>=2.1", False),
        ("numpy[version='>=9']", True),
        ("pytorch=2.4.1", True),
        ("pytorch=2.4.2", False),
        ("python=3.11", True),
        ("python=3.1", False),
        ("cudatoolkit=11", True),
    ],
)
def test_conda_s_spellings(spec: str, is_met: bool, tmp_path: Path, taken: dict[str, Any]) -> None:
    # cudatoolkit is no distribution: without conda nothing can tell whether it is there.
    (tmp_path / "environment.yml").write_text(yaml.safe_dump({"dependencies": [spec]}))
    (entry,) = lock.read(tmp_path, taken)
    assert (entry["differs"] == []) is is_met


def test_no_lock_ranges_only_and_another_tool_s(tmp_path: Path, taken: dict[str, Any]) -> None:
    assert judged(tmp_path, taken) == [("info", "lock", "no lock file")]
    (tmp_path / "environment.yml").write_text("dependencies: [python=3.11, numpy>=1.26, rich]\n")
    assert judged(tmp_path, taken) == [
        ("info", "lock", "no lock file: environment.yml gives ranges, not versions")
    ]
    (tmp_path / "uv.lock").write_text("")
    assert judged(tmp_path, taken) == []


@pytest.mark.parametrize("text", ["a: [", "- 1", "42", "dependencies: 3", "\udcff"])
def test_a_file_that_cannot_be_read_is_a_warning(
    text: str, tmp_path: Path, taken: dict[str, Any]
) -> None:
    (tmp_path / "environment.yml").write_bytes(text.encode("utf-8", "surrogateescape"))
    (level, what, message), _ = judged(tmp_path, taken)
    assert (level, what) == ("warning", "environment.yml")
    assert message.startswith("cannot be read: ") and "\n" not in message


def test_a_huge_file_does_not_hold_up_a_sweep(
    tmp_path: Path, taken: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "MAX_BYTES", 10)
    (tmp_path / "requirements.txt").write_text("numpy==2.0.1\n")
    assert "larger than 10 bytes" in lock.read(tmp_path, taken)[0]["error"]


def test_a_folder_that_cannot_be_written_to(tmp_path: Path, taken: dict[str, Any]) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot write"):
        export.export(tmp_path / "file" / "below", taken)


def test_this_environment_survives_the_round_trip(tmp_path: Path) -> None:
    from stabsweep.environment import conda, distributions

    version = ".".join(map(str, sys.version_info[:3]))
    here = snapshot(
        distributions=distributions.read(), conda=conda.read(), python={"version": version}
    )
    export.export(tmp_path, here)
    assert {level for level, _, _ in judged(tmp_path, here)} == {"info"}
