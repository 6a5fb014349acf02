from __future__ import annotations

from pathlib import Path

import pytest

from stabsweep.environment import findings
from tests.environment.prefixes import Prefix, snapshot


def levels(taken: dict) -> list[tuple[str, str]]:
    return [(finding.level, finding.what) for finding in findings.find(taken).findings]


@pytest.fixture
def prefix(tmp_path: Path) -> Prefix:
    return Prefix(tmp_path / "env")


def test_pip_over_conda_is_an_error_that_names_both_and_who_wins(prefix: Prefix) -> None:
    prefix.conda("pytorch", "1.11.0", "py3.9_cuda11.3_cudnn8.2.0_0").pip("torch", "2.4.1")
    found = findings.find(prefix.snapshot("2.4.1+cu121"))
    (finding,) = found.findings
    assert finding.level == "error" and not found.is_ok
    assert "mixed: conda 1.11.0 (cuda) / pip 2.4.1, pip wins" in str(finding)
    assert "pip uninstall torch" in finding.cure


def test_a_pure_conda_install_is_single_and_no_warning(prefix: Prefix) -> None:
    prefix.conda("pytorch", "2.4.1", "cpu_generic_py311_0", python="torch")
    found = findings.find(prefix.snapshot("2.4.1"))
    assert found.is_ok
    (finding,) = found.findings
    assert (finding.level, finding.what) == ("info", "torch")
    assert finding.message.startswith("single install (conda) 2.4.1")


@pytest.mark.parametrize("installer", ["pip", None])
def test_a_conda_package_that_kept_another_installer_is_conda_s_by_its_files(
    prefix: Prefix, installer: str | None
) -> None:
    prefix.conda("pytorch", "2.4.1", "cpu_0", python="torch", installer=installer)
    assert levels(prefix.snapshot("2.4.1")) == [("info", "torch")]


def test_the_same_version_of_pip_is_not_conda_s_when_conda_brought_other_files(
    prefix: Prefix,
) -> None:
    prefix.conda("pytorch", "2.4.1", "cpu_0", python="torch")
    (prefix.site / "torch-2.4.1.dist-info" / "INSTALLER").write_text("conda")
    prefix.pip("torch", "2.4.1+cu121")
    found = findings.find(prefix.snapshot("2.4.1+cu121")).findings[0]
    assert found.message == "mixed: conda 2.4.1 (cpu) / pip 2.4.1+cu121, pip wins"
    found = findings.find(prefix.snapshot("2.4.1")).findings[0]
    assert found.message.endswith("conda wins")


def test_the_same_version_is_not_conda_s_when_conda_s_files_are_others(prefix: Prefix) -> None:
    prefix.conda("pytorch", "2.4.1", "cpu_0").pip("torch", "2.4.1")
    (record,) = (prefix.folder / "conda-meta").glob("*.json")
    text = record.read_text()
    # conda-forge marks its own builds: what lies there now was written by another.
    path = "lib/python3.11/site-packages/torch-2.4.1.post300.dist-info/METADATA"
    record.write_text(text.replace("lib/libpytorch.so", path))
    assert levels(prefix.snapshot("2.4.1")) == [("error", "torch")]
    record.write_text(text)
    assert levels(prefix.snapshot("2.4.1")) == [("info", "torch")]


def test_a_copy_of_pip_in_the_user_s_own_folder_hides_conda_s(
    prefix: Prefix, tmp_path: Path
) -> None:
    from stabsweep.environment import distributions

    prefix.conda("pytorch", "2.4.1", "cpu_0", python="torch")
    user = Prefix(tmp_path / "user").pip("torch", "2.4.1")
    taken = prefix.snapshot("2.4.1")
    taken["distributions"] = distributions.read([str(user.site), str(prefix.site)])
    taken["torch"] = user.loaded("2.4.1")
    assert findings.find(taken).findings[0].message.endswith("/ pip 2.4.1, pip wins")
    taken["distributions"].reverse()
    taken["torch"] = prefix.loaded("2.4.1")
    assert findings.find(taken).findings[0].message.endswith("/ pip 2.4.1, conda wins")


def test_torch_that_fails_for_numpy_s_sake_is_not_to_be_reinstalled() -> None:
    reason = {"error": "ImportError: libnope.so", "file": "/s/x/__init__.py"}
    numpy, torch = findings.find(snapshot(torch=reason, numpy=reason)).findings
    assert (numpy.what, torch.what) == ("numpy", "torch")
    assert "pip uninstall numpy" in numpy.cure and torch.cure.startswith("mend numpy first")


def test_conda_over_pip_with_a_cpu_build_beside_a_gpu(prefix: Prefix) -> None:
    prefix.pip("torch", "2.4.1").conda("pytorch", "1.12.1", "cpu_py38h23e632a_1", python="torch")
    taken = prefix.snapshot("1.12.1", gpu={"names": ["NVIDIA A100"], "cuda_available": False})
    found = findings.find(taken)
    assert [finding.level for finding in found.findings] == ["error", "error"]
    mixed, cpu = (finding.message for finding in found.findings)
    assert mixed == "mixed: conda 1.12.1 (cpu) / pip 2.4.1, conda wins"
    assert "CPU build (1.12.1 cpu_py38h23e632a_1) beside a GPU (NVIDIA A100)" in cpu


def test_where_nothing_loads_whoever_wrote_last_wins(prefix: Prefix) -> None:
    prefix.conda("pytorch", "1.11.0", "cuda_0").pip("torch", "2.4.1")
    broken = {"error": "OSError: libcudart.so.11.0: cannot open", "file": "torch/__init__.py"}
    found = findings.find(prefix.snapshot() | {"torch": broken}).findings
    assert [finding.what for finding in found] == ["torch", "torch"]
    assert found[0].message.endswith("pip wins")
    assert "does not load from torch/__init__.py: OSError: libcudart" in found[1].message


def test_what_does_not_compute_may_come_from_both(prefix: Prefix) -> None:
    # conda's tzdata is the database, pip's is a Python package: one name, two things.
    prefix.conda("tzdata", "2024a").pip("tzdata", "2024.1").conda("rich", "13.0").pip("rich", "14")
    assert levels(prefix.snapshot()) == []


def test_channels_mixed(prefix: Prefix) -> None:
    prefix.conda("zlib", "1").conda("xz", "5").conda("numpy", "2.0", channel="pkgs/main")
    (finding,) = findings.find(prefix.snapshot()).findings
    assert (finding.level, finding.what) == ("warning", "channels")
    assert "2 of conda-forge, 1 of defaults" in finding.message


def test_one_channel_and_a_vendor_s_is_fine(prefix: Prefix) -> None:
    prefix.conda("zlib", "1").conda("cuda-cudart", "12", channel="nvidia")
    assert levels(prefix.snapshot()) == []


def test_two_versions_in_one_folder(prefix: Prefix) -> None:
    prefix.pip("numpy", "1.26.4").pip("numpy", "2.0.0").pip("rich", "13").pip("rich", "14")
    assert levels(prefix.snapshot()) == [("error", "numpy"), ("warning", "rich")]


def test_a_copy_that_another_folder_hides(tmp_path: Path) -> None:
    from stabsweep.environment import distributions

    first, second = Prefix(tmp_path / "a"), Prefix(tmp_path / "b")
    first.pip("scipy", "1.11").pip("six", "1.0")
    second.pip("scipy", "1.12").pip("six", "1.0")
    told = distributions.read([str(first.site), str(second.site)])
    (finding,) = findings.find(snapshot(distributions=told)).findings
    assert (finding.level, finding.what) == ("warning", "scipy")
    assert "1.11 (pip) and 1.12 (pip), the first wins" in finding.message


def test_what_is_loaded_is_not_what_the_metadata_says(prefix: Prefix) -> None:
    taken = prefix.pip("torch", "2.3.0").snapshot("2.4.1")
    (finding,) = findings.find(taken).findings
    assert finding.level == "error" and "the metadata says 2.3.0" in finding.message
    taken["torch"] |= {"version": "2.3.0", "file": "/elsewhere/torch/__init__.py"}
    (finding,) = findings.find(taken).findings
    assert "loaded from /elsewhere/torch/__init__.py" in finding.message
    taken["distributions"][0]["source"] = "editable file:///elsewhere"
    assert levels(taken) == []
    taken["distributions"] = []
    (finding,) = findings.find(taken).findings
    assert finding.level == "warning" and "no metadata" in finding.message


def test_not_installed_is_said_so() -> None:
    taken = snapshot(torch={"error": "ModuleNotFoundError: No module named 'torch'", "file": None})
    (finding,) = findings.find(taken).findings
    assert str(finding).split() == "error torch: is not installed -> pip install torch".split()


def test_a_torch_built_for_another_numpy(prefix: Prefix) -> None:
    taken = prefix.pip("torch", "2.2.0").snapshot("2.2.0", numpy={"version": "2.0.0"})
    taken["distributions"].append(
        {"name": "numpy", "version": "2.0.0", "folder": "", "source": "-"}
    )
    taken["torch"]["from_numpy"] = {"error": "RuntimeError: Numpy is not available"}
    (finding,) = findings.find(taken).findings
    assert (finding.level, finding.what) == ("error", "numpy")
    assert "Numpy is not available" in finding.message and "numpy<2" in finding.cure


def test_worst_comes_first_one_line_each(prefix: Prefix) -> None:
    prefix.conda("pytorch", "1.11.0", "cuda_0").pip("torch", "2.4.1").pip("six", "1").pip(
        "six", "2"
    )
    found = findings.find(prefix.snapshot("2.4.1", lock=[]))
    assert [finding.level for finding in found.findings] == ["error", "warning", "info"]
    assert all("\n" not in str(finding) for finding in found.findings)
    assert found.summary().splitlines()[-1] == "not ok: 1 error, 1 warning"
    assert all(finding.cure for finding in found.findings)


def test_a_warning_of_a_later_check_comes_before_an_earlier_word(prefix: Prefix) -> None:
    prefix.conda("pytorch", "2.4.1", "cpu_0", python="torch")
    pools = [{"api": "openmp", "kind": kind, "owner": "x"} for kind in ("libgomp", "libiomp")]
    assert levels(prefix.snapshot("2.4.1", runtimes=pools)) == [
        ("warning", "OpenMP"),
        ("info", "torch"),
    ]


def test_an_old_snapshot_is_checked_as_far_as_it_tells() -> None:
    old = {"format": 1, "torch": {"version": "2.13.0"}, "numpy": {"version": "2.0"}}
    (finding,) = findings.find(old).findings
    assert (finding.level, finding.what) == ("info", "snapshot")
