"""The OpenMP and BLAS runtimes that this process has loaded, and whether they get along."""

from __future__ import annotations

import importlib
import os
import re
import warnings
from typing import Any

from stabsweep.environment.finding import Finding
from stabsweep.environment.lookup import Snapshot, look, look_list, look_text

LOADERS = ("numpy", "torch", "scipy.linalg", "sklearn.utils")
"""What a sweep with the digits loads, in this order: each brings a runtime of its own."""

FORKS = ("libomp", "libiomp")
"""LLVM's OpenMP and Intel's, of which it is a fork."""


def load() -> None:
    """Loads what brings a runtime, as a sweep would; what does not load is left out."""
    for name in LOADERS:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module(name)
        except Exception:  # a broken install raises anything, and `libraries` says what
            continue


def read() -> list[dict[str, Any]] | dict[str, str]:
    """The runtimes that are loaded now, by path.

    It misleads about what is linked statically: the MKL within torch's own wheels is not a library
    that could be found (`torch.blas` names it). A library that is not imported yet has loaded
    nothing yet, see `load`.

    Returns:
        `{api, kind, version, threads, layer, architecture, owner, path}` each, None where it is not
        told; `owner` is the package that brought it. `{"error": reason}` where that cannot be seen.
    """
    hides = os.environ.get("KMP_DUPLICATE_LIB_OK")
    try:
        threadpoolctl = importlib.import_module("threadpoolctl")
        with warnings.catch_warnings():
            # It warns of Intel's OpenMP beside LLVM's, which is a finding here.
            warnings.simplefilter("ignore")
            found = threadpoolctl.threadpool_info()
    except Exception as error:  # it reads the loader's tables of any platform
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        if hides is None:
            # It sets this when it is imported, for itself and for every process started later.
            os.environ.pop("KMP_DUPLICATE_LIB_OK", None)
    entries = [
        {
            "api": entry.get("user_api"),
            "kind": entry.get("prefix"),
            "version": entry.get("version"),
            "threads": entry.get("num_threads"),
            "layer": entry.get("threading_layer"),
            "architecture": entry.get("architecture"),
            "owner": find_owner(str(entry.get("filepath"))),
            "path": entry.get("filepath"),
        }
        for entry in found
    ]
    return sorted(entries, key=lambda entry: str(entry["path"]))


def find_owner(path: str) -> str:
    """The package whose folder a library lies in; `lib` for one of the environment's own.

    >>> find_owner("/e/lib/python3.11/site-packages/scikit_learn.libs/libgomp-e985.so.1.0.0")
    'scikit_learn'
    >>> find_owner("/opt/conda/lib/libiomp5.so")
    'lib'
    """
    parts = re.split(r"[\\/]", path)
    for mark in ("site-packages", "dist-packages"):
        if mark in parts[:-1]:
            return parts[parts.index(mark) + 1].removesuffix(".libs").partition(".")[0]
    return parts[-2] if len(parts) > 1 else path


def find(snapshot: Snapshot) -> list[Finding]:
    """OpenMP runtimes that do not get along, and whose BLAS is whose.

    References:
        threadpoolctl's `multiple_openmp.md`: Intel's and LLVM's OpenMP in one process crash or hang
        on Linux; GNU's beside Intel's was never seen to. Intel's message "OMP: Error #15": a second
        copy of it aborts, and `KMP_DUPLICATE_LIB_OK` "may cause crashes or silently produce
        incorrect results".
    """
    if isinstance(reason := look(snapshot, "runtimes.error"), str):
        return [
            Finding(
                "warning", "OpenMP", f"its runtimes cannot be seen ({reason})",
                "pip install threadpoolctl",
            )
        ]  # fmt: skip
    runtimes = look_list(snapshot, "runtimes")
    return [*_find_openmp(snapshot, runtimes), *_find_blas(snapshot)]


def _find_openmp(snapshot: Snapshot, runtimes: list[dict[str, Any]]) -> list[Finding]:
    openmp = [entry for entry in runtimes if entry.get("api") == "openmp"]
    if len(openmp) < 2:
        return []
    kinds = {str(entry.get("kind")) for entry in openmp}
    hidden = look_text(snapshot, "variables.KMP_DUPLICATE_LIB_OK").lower() in ("true", "1", "yes")
    whose = ", ".join(f"{entry.get('kind')} of {entry.get('owner')}" for entry in openmp)
    if kinds >= set(FORKS):
        level = "error" if look_text(snapshot, "platform.system") in ("Linux", "") else "warning"
        return [
            Finding(
                level, "OpenMP",
                f"Intel's and LLVM's runtime in one process ({whose}): on Linux they crash or hang",
                "set MKL_THREADING_LAYER=GNU before Python starts, or take builds that share one: "
                "all of conda-forge, or all of pip",
            )
        ]  # fmt: skip
    if kinds == {"libgomp"}:
        return [
            Finding(
                "info", "OpenMP",
                f"{len(openmp)} copies of one runtime ({whose}), as wheels bring them: each has "
                "its own threads",
                "set OMP_NUM_THREADS before Python starts, which all of them read",
            )
        ]  # fmt: skip
    if len(kinds) == 1:
        does = "aborts with OMP: Error #15"
        if hidden:
            does = "may compute wrong numbers in silence, for KMP_DUPLICATE_LIB_OK hides it"
        return [
            Finding(
                "warning", "OpenMP",
                f"{len(openmp)} copies of one runtime ({whose}): the second to start {does}",
                "take the packages of one source, all of conda or all of pip",
            )
        ]  # fmt: skip
    return [
        Finding(
            "warning", "OpenMP",
            f"two runtimes in one process ({whose}): two pools of threads compete for the cores, "
            "and a forked worker may hang",
            "take the packages of one source, all of conda or all of pip, or set "
            "MKL_THREADING_LAYER=GNU before Python starts",
        )
    ]  # fmt: skip


def _find_blas(snapshot: Snapshot) -> list[Finding]:
    numpys, torchs = look_text(snapshot, "numpy.blas"), look_text(snapshot, "torch.blas")
    if not numpys or not torchs or torchs.lower() in numpys.lower():
        return []
    return [
        Finding(
            "info", "BLAS",
            f"NumPy computes with {numpys}, torch with {torchs}: the usual pairing of wheels, but "
            "their last digits need not agree",
        )
    ]  # fmt: skip
