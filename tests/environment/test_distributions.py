from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

from stabsweep.environment import conda, distributions
from tests.environment.prefixes import Prefix


def test_it_agrees_with_importlib() -> None:
    told = {(d["name"], d["version"]) for d in distributions.read()}
    slow = {
        (distributions.canonical(d.metadata["Name"]), d.version) for d in metadata.distributions()
    }
    assert told == slow


def test_a_folder_that_is_reached_twice_is_read_once(tmp_path: Path) -> None:
    prefix = Prefix(tmp_path).pip("scikit_learn", "1.5.0")
    (tmp_path / "lib64").symlink_to(tmp_path / "lib", target_is_directory=True)
    twin = tmp_path / "lib64" / "python3.11" / "site-packages"
    (entry,) = distributions.read([str(prefix.site), str(twin), str(tmp_path / "missing")])
    assert entry["name"] == "scikit-learn" and entry["installer"] == "pip"
    assert entry["folder"] == str(prefix.site.resolve())


def test_odd_metadata(tmp_path: Path) -> None:
    site = Prefix(tmp_path).pip("plain", "1.0", installer=None).site
    (site / "~orch-2.0.dist-info").mkdir()
    (site / "~orch-2.0.dist-info" / "METADATA").write_text("")
    (site / "hollow-1.0.dist-info").mkdir()
    (site / "old-1.2-py3.11.egg-info").write_text("Version: 1.2\n")
    (site / "dev.egg-info").mkdir()
    (site / "dev.egg-info" / "PKG-INFO").write_text("Name: dev\nVersion: 0.3\n")
    told = {entry["name"]: entry["version"] for entry in distributions.read([str(site)])}
    assert told == {"plain": "1.0", "old": "1.2", "dev": "0.3"}


def test_where_it_came_from_without_the_password(tmp_path: Path) -> None:
    prefix = Prefix(tmp_path)
    prefix.pip("mine", "1", url="file:///src/mine", dir_info={"editable": True})
    vcs = {"vcs": "git", "commit_id": "abc123"}
    prefix.pip("theirs", "2", url="https://me:hunter2@example.org/x.git", vcs_info=vcs)
    prefix.pip("wheel_of", "3", url="https://example.org/w.whl?sig=hunter2", archive_info={})
    told = distributions.read([str(prefix.site)])
    assert "hunter2" not in json.dumps(told)
    assert {entry["name"]: entry["source"] for entry in told} == {
        "mine": "editable file:///src/mine",
        "theirs": "git+https://example.org/x.git@abc123",
        "wheel-of": "https://example.org/w.whl",
    }


def test_the_folder_that_conda_built_a_package_in_is_no_source(tmp_path: Path) -> None:
    prefix = Prefix(tmp_path)
    prefix.pip("numpy", "2.0", "conda", url="file:///home/conda/feedstock_root/work", dir_info={})
    (entry,) = distributions.read([str(prefix.site)])
    assert "source" not in entry


def test_conda_records_without_the_token_of_a_private_channel(tmp_path: Path) -> None:
    prefix = Prefix(tmp_path)
    prefix.conda("pytorch", "2.4.1", "cuda120_py311_0", channel="t/tk-hunter2/team", python="torch")
    prefix.conda("xz", "5.2.6", "h166bdaf_0")
    told = conda.read(tmp_path)
    assert "hunter2" not in json.dumps(told)
    assert told == [
        {
            "name": "pytorch",
            "version": "2.4.1",
            "build": "cuda120_py311_0",
            "channel": "team",
            "owns": "torch-2.4.1.dist-info",
        },
        {"name": "xz", "version": "5.2.6", "build": "h166bdaf_0", "channel": "conda-forge"},
    ]
    assert conda.read(tmp_path / "missing") is None


def test_a_channel_that_is_no_more_than_a_host_and_a_password(tmp_path: Path) -> None:
    meta = tmp_path / "conda-meta"
    meta.mkdir()
    told = {"channel": "https://me:hunter2@conda.example.org"}
    (meta / "x-1.0-0.json").write_text(json.dumps(told))
    (record,) = conda.read(tmp_path) or []
    assert record["channel"] == "conda.example.org"


def test_a_channel_far_down_in_a_record_and_a_torn_record(tmp_path: Path) -> None:
    meta = tmp_path / "conda-meta"
    meta.mkdir()
    files = [f"lib/{number:05}" for number in range(9000)]
    late = {"files": files, "channel": "https://conda.example.org/conda-forge/"}
    (meta / "big-1.0-0.json").write_text(json.dumps(late))
    (meta / "torn-1.0-0.json").write_text('{"build": ')
    told = {record["name"]: record["channel"] for record in conda.read(tmp_path) or []}
    assert told == {"big": "conda-forge", "torn": None}
