from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from stabsweep.environment import runtimes
from tests.environment.prefixes import snapshot


def openmp(*kinds: str) -> list[dict[str, Any]]:
    return [{"api": "openmp", "kind": kind, "owner": f"p{n}"} for n, kind in enumerate(kinds)]


def test_what_torch_and_numpy_load_is_seen_with_its_owner() -> None:
    runtimes.load()
    found = runtimes.read()
    assert isinstance(found, list)
    by_owner = {(entry["owner"], entry["api"]) for entry in found}
    assert {"openmp", "blas"} <= {api for _, api in by_owner}
    assert all(os.path.isabs(entry["path"]) for entry in found)
    assert all(isinstance(entry["threads"], int) for entry in found)


@pytest.mark.parametrize(
    "kinds, level",
    [
        (("libiomp", "libomp"), "error"),
        (("libiomp", "libgomp"), "warning"),
        (("libomp", "libgomp"), "warning"),
        (("libiomp", "libiomp"), "warning"),
        (("libgomp", "libgomp"), "info"),
    ],
)
def test_two_openmp_runtimes_are_judged_by_their_kinds(kinds: tuple[str, ...], level: str) -> None:
    (finding,) = runtimes.find(snapshot(runtimes=openmp(*kinds)))
    assert (finding.level, finding.what) == (level, "OpenMP")
    assert f"{kinds[0]} of p0" in finding.message


def test_intel_s_beside_llvm_s_is_harmless_elsewhere_than_on_linux() -> None:
    pair = openmp("libiomp", "libomp")
    (finding,) = runtimes.find(snapshot(runtimes=pair, platform={"system": "Darwin"}))
    assert finding.level == "warning"


def test_one_openmp_runtime_is_not_worth_a_word() -> None:
    assert runtimes.find(snapshot(runtimes=openmp("libgomp"))) == []


def test_a_hidden_second_copy_is_named_for_what_it_does() -> None:
    taken = snapshot(runtimes=openmp("libiomp", "libiomp"))
    assert "Error #15" in runtimes.find(taken)[0].message
    taken["variables"] = {"KMP_DUPLICATE_LIB_OK": "1"}
    assert "wrong numbers in silence" in runtimes.find(taken)[0].message


def test_openblas_beside_mkl_is_information() -> None:
    taken = snapshot(numpy={"version": "2", "blas": "scipy-openblas 0.3"}, torch={"blas": "mkl"})
    (finding,) = runtimes.find(taken)
    assert (finding.level, finding.what) == ("info", "BLAS")
    taken["numpy"]["blas"] = "mkl 2024.2"
    assert runtimes.find(taken) == []


def test_without_threadpoolctl_it_says_why_and_leaves_no_variable_behind() -> None:
    code = (
        "import os, sys\n"
        "os.environ.pop('KMP_DUPLICATE_LIB_OK', None)\n"
        "from stabsweep.environment import runtimes\n"
        "print(isinstance(runtimes.read(), list), 'KMP_DUPLICATE_LIB_OK' in os.environ)\n"
        "sys.modules['threadpoolctl'] = None\n"
        "print(runtimes.read()['error'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first == "True False"
    assert second.startswith("ModuleNotFoundError")
    (finding,) = runtimes.find(snapshot(runtimes={"error": second}))
    assert finding.level == "warning" and finding.cure == "pip install threadpoolctl"
