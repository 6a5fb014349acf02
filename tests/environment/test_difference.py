from __future__ import annotations

import copy
from typing import Any

import pytest

from stabsweep.environment import snapshot as taking
from stabsweep.environment.difference import ABSENT, diff


@pytest.fixture(scope="module")
def here() -> dict[str, Any]:
    return taking.take()


def changed(here: dict[str, Any], place: str, value: object) -> dict[str, Any]:
    other = copy.deepcopy(here)
    part, _, name = place.rpartition(".")
    (other[part] if part else other)[name] = value
    return other


def test_a_snapshot_does_not_differ_from_itself(here: dict[str, Any]) -> None:
    found = diff(here, copy.deepcopy(here))
    assert found.is_same and not found.others and not found.untold and found.code is None
    assert "Nothing differs that can change numbers." in found.summary()


@pytest.mark.parametrize(
    "place, value, what, effect",
    [
        ("threads.torch", 99, "threads", "7th digit"),
        ("torch.version", "2.0.0+cpu", "torch", "other kernels"),
        ("torch.version", "{}+cu126", "torch build", "variant"),
        ("torch.cuda", "12.6", "torch build", "variant"),
        ("torch.cpu_capability", "AVX1024", "vector level", "vector instructions"),
        ("torch.blas", "open", "torch BLAS", "matrix products"),
        ("torch.cudnn", 90100, "cuDNN", "convolutions"),
        ("numpy.version", "1.26.4", "numpy", "other kernels"),
        ("cpu.vector", "AVX1024", "CPU vectors", "vector instructions"),
        ("gpu.names", ["NVIDIA H100"], "GPU", "order of summation"),
        ("gpu.driver", "NVRM 550.54.14", "driver", "kernels"),
        ("switches.matmul_tf32", True, "torch.matmul_tf32", "2e-4"),
        ("switches.cudnn_tf32", False, "torch.cudnn_tf32", "2e-4"),
        ("switches.deterministic", True, "torch.deterministic", "repeats itself"),
        ("variables.CUDA_VISIBLE_DEVICES", "", "CUDA_VISIBLE_DEVICES", "GPU"),
        ("python.version", "3.9.1", "Python", "sum"),
    ],
)
def test_each_thing_that_computes_is_told_with_what_it_does(
    here: dict[str, Any], place: str, value: object, what: str, effect: str
) -> None:
    if isinstance(value, str):
        value = value.format(here["torch"]["version"].partition("+")[0])
    found = diff(here, changed(here, place, value))
    assert [change.what for change in found.numeric] == [what]
    assert effect in found.numeric[0].effect
    assert not found.is_same


def test_what_computes_nothing_is_folded_away(here: dict[str, Any]) -> None:
    other = copy.deepcopy(here)
    for entry in other["distributions"]:
        if entry["name"] in ("rich", "pandas"):
            entry["version"] = "0.0.1"
    other["platform"]["release"] = "0"
    found = diff(here, other)
    assert found.is_same
    assert "and 3 differences that compute nothing: all=true shows them" in found.summary()
    assert "0.0.1" not in found.summary() and "0.0.1" in found.summary(show_all=True)


def test_distributions_that_compute(here: dict[str, Any]) -> None:
    other = copy.deepcopy(here)
    other["distributions"] = [d for d in other["distributions"] if d["name"] != "scipy"]
    other["distributions"].append({"name": "nvidia-cublas-cu12", "version": "12.6"})
    found = diff(here, other)
    told = {change.what: (change.a, change.b) for change in found.numeric}
    assert told["nvidia-cublas-cu12"] == (ABSENT, "12.6")
    assert told["scipy"][1] == ABSENT and len(told) == 2


def test_a_runtime_of_another_version_and_one_that_is_not_loaded_yet(here: dict[str, Any]) -> None:
    blas = {"api": "blas", "kind": "libmkl", "owner": "numpy", "threads": 2}
    a = {"runtimes": [{**blas, "version": "1"}, {"api": "openmp", "kind": "x", "owner": "y"}]}
    b = {"runtimes": [{**blas, "version": "2", "threads": 4}]}
    told = [(change.what, change.a, change.b) for change in diff(a, b).numeric]
    assert told == [("libmkl of numpy", "1", "2"), ("BLAS threads", "2", "4")]


def test_conda_builds(here: dict[str, Any]) -> None:
    a = {"conda": [{"name": "mkl", "version": "1", "build": "x"}, {"name": "xz", "version": "5"}]}
    b = copy.deepcopy(a)
    b["conda"][0]["build"], b["conda"][1]["version"] = "y", "6"
    found = diff(a, b)
    assert [change.what for change in found.numeric] == ["conda mkl"]
    assert [change.what for change in found.others] == ["conda xz"]
    # Where conda did not make both, its builds are nothing to compare.
    assert diff(a, {"conda": None}).is_same


def test_an_old_snapshot_is_compared_as_far_as_it_tells(here: dict[str, Any]) -> None:
    old = copy.deepcopy(here)
    for name in ("runtimes", "distributions", "conda", "lock"):
        del old[name]
    del old["cpu"]["vector"], old["torch"]["file"], old["torch"]["from_numpy"]
    old |= {"format": 1}
    found = diff(old, here)
    assert found.is_same and not found.others
    assert found.untold == ("runtimes", "distributions", "conda", "lock")
    assert "Not told by both" in found.summary()
    old["versions"]["scipy"] = "1.0"
    assert [change.what for change in diff(old, here).numeric] == ["scipy"]


def test_a_library_that_does_not_load_in_one_of_them_is_a_difference(here: dict[str, Any]) -> None:
    reason = "ImportError: libnope.so\n\n" + "see the manual " * 99
    found = diff(here, changed(here, "numpy", {"error": reason, "file": None}))
    (change,) = found.numeric
    assert change.what == "numpy" and change.b.startswith("ImportError: libnope.so see")
    assert "\n" not in change.b


def test_the_code_is_told_but_is_not_the_environment(here: dict[str, Any]) -> None:
    a = changed(here, "git", {"commit": "a" * 40, "dirty": False})
    found = diff(a, changed(here, "git", {"commit": "a" * 40, "dirty": True}))
    assert found.is_same and found.code is not None
    assert "Code: aaaaaaaaaaaa / aaaaaaaaaaaa changed" in found.summary()


def test_it_is_plain_values(here: dict[str, Any]) -> None:
    told = diff(here, changed(here, "threads.torch", 99), ("x", "y")).as_dict()
    assert (told["a"], told["b"], told["same"]) == ("x", "y", False)
    assert told["numeric"][0]["b"] == "99"
