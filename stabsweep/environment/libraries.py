"""The libraries that compute: versions, builds, threads, and the switches that change numbers.

Each function answers for a library that is missing or does not load with `{"error": reason}`.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from stabsweep.environment.distributions import find_module

LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch", "optuna", "hydra-core", "omegaconf", "ray")
"""The distributions whose version is recorded, None when not installed."""

SWITCHES: Mapping[str, str] = {
    "default_dtype": "get_default_dtype",
    "float32_matmul_precision": "get_float32_matmul_precision",
    "deterministic": "are_deterministic_algorithms_enabled",
    "deterministic_warn_only": "is_deterministic_algorithms_warn_only_enabled",
    "matmul_tf32": "backends.cuda.matmul.allow_tf32",
    "matmul_fp32_precision": "backends.cuda.matmul.fp32_precision",
    "matmul_fp16_reduction": "backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
    "matmul_bf16_reduction": "backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
    "cudnn_tf32": "backends.cudnn.allow_tf32",
    "cudnn_fp32_precision": "backends.cudnn.conv.fp32_precision",
    "cudnn_deterministic": "backends.cudnn.deterministic",
    "cudnn_benchmark": "backends.cudnn.benchmark",
}
"""The switches of torch that change numbers: our name -> where torch keeps it.

One that this torch does not have (the `fp32_precision` ones are young) is recorded as None.
"""


def read_versions(installed: Iterable[Mapping[str, Any]]) -> dict[str, str | None]:
    """The installed version of each of `LIBRARIES`, whether or not it loads.

    Args:
        installed: what `distributions.read` returned; of two copies the first counts.
    """
    found: dict[str, str | None] = {}
    for entry in installed:
        found.setdefault(entry["name"], entry["version"])
    return {name: found.get(name) for name in LIBRARIES}


def read_switches() -> dict[str, Any]:
    """Where each of `SWITCHES` stands."""
    return _torch_answers(SWITCHES)


def read_threads() -> dict[str, Any]:
    """How many threads torch uses within an operation, and for operations side by side."""
    return _torch_answers({"torch": "get_num_threads", "interop": "get_num_interop_threads"})


def read_devices() -> dict[str, Any]:
    """The accelerators that torch can use, counted without initialising them."""
    return _torch_answers(
        {
            "cuda_available": "cuda.is_available",
            "num_cuda": "cuda.device_count",
            "mps_available": "backends.mps.is_available",
        }
    )


def read_torch_build() -> dict[str, Any]:
    """Torch's version and what it was built with, without the compiler's flags.

    `from_numpy` says whether it takes NumPy's arrays: a build for another NumPy loads, and warns,
    but does not. `file` is what `import torch` loads, or would.
    """
    build = _torch_answers(
        {
            "version": "__version__",
            "commit": "version.git_version",
            "cuda": "version.cuda",
            "hip": "version.hip",
            "cudnn": "backends.cudnn.version",
            "cpu_capability": "backends.cpu.get_cpu_capability",
            "mkl": "backends.mkl.is_available",
            "onednn": "backends.mkldnn.is_available",
            "openmp": "backends.openmp.is_available",
            "config": "__config__.show",
        }
    )
    if isinstance(config := build.pop("config", None), str):
        lines = [line.strip(" -") for line in config.splitlines()[1:] if line.strip()]
        head, found, tail = config.partition("BLAS_INFO=")
        build["blas"] = tail.split(",")[0].strip() if found else None
        build["libraries"] = [line for line in lines if not line.startswith("Build settings:")]
    if "error" not in build:
        build["from_numpy"] = _from_numpy()
    return {**build, "file": find_module("torch")}


def read_numpy_build() -> dict[str, Any]:
    """NumPy's version and its BLAS, which need not be torch's."""
    try:
        numpy = importlib.import_module("numpy")
        blas = numpy.show_config(mode="dicts")["Build Dependencies"]["blas"]
    except Exception as error:  # a broken install raises anything
        return {**_reason(error), "file": find_module("numpy")}
    return {
        "version": numpy.__version__,
        "blas": f"{blas.get('name')} {blas.get('version')}",
        "blas_configuration": blas.get("openblas configuration"),
        "file": find_module("numpy"),
    }


def _from_numpy() -> bool | dict[str, str]:
    try:
        numpy, torch = (importlib.import_module(name) for name in ("numpy", "torch"))
        torch.from_numpy(numpy.zeros(1))
    except Exception as error:  # either may be broken in any way
        return _reason(error)
    return True


def _torch_answers(places: Mapping[str, str]) -> dict[str, Any]:
    """What stands, or what is returned, at each dotted place below torch."""
    try:
        torch = importlib.import_module("torch")
    except Exception as error:  # a broken install raises anything
        return _reason(error)
    return {name: _answer(torch, place) for name, place in places.items()}


def _answer(torch: Any, place: str) -> Any:
    value = torch
    # Mixing the old and the new TF32 switches warns on reading, and raises in some versions.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for name in place.split("."):
                value = getattr(value, name)
            value = value() if callable(value) else value
        except AttributeError:
            return None
        except Exception as error:
            return _reason(error)
    return value if isinstance(value, bool | int | float) or value is None else str(value)


def _reason(error: Exception) -> dict[str, str]:
    return {"error": f"{type(error).__name__}: {error}"}
