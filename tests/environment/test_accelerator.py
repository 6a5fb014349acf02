from __future__ import annotations

from typing import Any

import pytest

from stabsweep.environment import accelerator
from tests.environment.prefixes import snapshot

DRIVER = "NVIDIA UNIX x86_64 Kernel Module  {}  Sat Aug 19 01:15:15 UTC 2023"


def with_gpu(driver: str = "550.54.14", cuda: str | None = "12.4", **more: Any) -> dict[str, Any]:
    gpu = {"names": ["NVIDIA A100"], "driver": DRIVER.format(driver), "cuda_available": bool(cuda)}
    torch = {"version": "2.4.1", "cuda": cuda, "hip": None}
    return snapshot(gpu=gpu, torch=torch, **more)


def test_nothing_to_say_of_a_gpu_that_is_used_as_it_should_be() -> None:
    assert accelerator.find(with_gpu(switches={"deterministic": False})) == []


def test_a_cpu_build_of_pip_beside_a_gpu_is_a_warning() -> None:
    (finding,) = accelerator.find(with_gpu(cuda=None))
    assert finding.level == "warning" and "CPU build beside a GPU (NVIDIA A100)" in finding.message


@pytest.mark.parametrize(
    "cuda, driver, least",
    [
        ("13.0", "575.57.08", "580"),
        ("12.4", "470.82.01", "525"),
        ("11.8", "450.36.06", "450.80.02"),
        ("10.2", "430.50", "440.33"),
    ],
)
def test_a_driver_that_is_too_old(cuda: str, driver: str, least: str) -> None:
    taken = with_gpu(driver, cuda)
    # NVIDIA's package for forward compatibility makes an old driver do.
    assert accelerator.find(taken) == []
    taken["gpu"]["cuda_available"] = False
    (finding,) = accelerator.find(taken)
    assert (finding.level, finding.what) == ("error", "driver")
    assert f"{driver} is older than CUDA {cuda} needs ({least})" in finding.message


@pytest.mark.parametrize(
    "cuda, driver",
    [("13.0", "580.65.06"), ("12.8", "525.60.13"), ("11.8", "535.104.05"), ("99", "1")],
)
def test_a_driver_that_is_new_enough_or_unknown(cuda: str, driver: str) -> None:
    taken = with_gpu(driver, cuda)
    taken["gpu"]["cuda_available"] = False
    assert [finding.what for finding in accelerator.find(taken)] == ["GPU"]


def test_a_gpu_that_torch_cannot_use() -> None:
    taken = with_gpu()
    taken["gpu"]["cuda_available"] = False
    (finding,) = accelerator.find(taken)
    assert finding.level == "warning" and "cannot use NVIDIA A100" in finding.message
    taken["variables"] = {"CUDA_VISIBLE_DEVICES": ""}
    (finding,) = accelerator.find(taken)
    assert finding.level == "info" and "hidden" in finding.message


def test_tf32_is_explained_where_there_is_a_gpu_to_have_it() -> None:
    switches = {"matmul_tf32": False, "cudnn_tf32": True}
    (finding,) = accelerator.find(with_gpu(switches=switches))
    assert (finding.level, finding.what) == ("info", "TF32")
    assert "on for cuDNN, off for matmul" in finding.message and "2e-4" in finding.message
    assert accelerator.find(snapshot(switches=switches)) == []


def test_determinism_half_way_says_when_the_variable_must_be_set() -> None:
    switches = {"deterministic": True, "cudnn_benchmark": False}
    (finding,) = accelerator.find(with_gpu(switches=switches))
    assert (finding.level, finding.what) == ("warning", "determinism")
    assert "before Python starts" in finding.cure
    whole = with_gpu(switches=switches, variables={"CUBLAS_WORKSPACE_CONFIG": ":4096:8"})
    assert accelerator.find(whole) == []
    (finding,) = accelerator.find(
        with_gpu(switches=switches, variables={"CUBLAS_WORKSPACE_CONFIG": ":8"})
    )
    assert "is ':8'" in finding.message
    # Without CUDA there is nothing to be half way about.
    assert accelerator.find(snapshot(switches=switches)) == []
