"""Other machines, as far as child processes can play them."""

import os
import subprocess
import sys

import pytest

from stabsweep import fingerprint

PLAIN = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
"""Threads that wait would else take the cores from other tests."""

MACHINES = {
    "plain": {},
    "again": {},
    "two threads": {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"},
    "no vectors": {"ATEN_CPU_CAPABILITY": "default"},
    "other kernels": {"MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"},
}
"""What the machine is called here -> how its child process is told to be so."""


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    """The fingerprints of all of them, each from the command line of a process of its own."""
    folder = tmp_path_factory.mktemp("machines")
    found, waiting = {}, list(MACHINES.items())
    while waiting:
        pair, waiting = waiting[:2], waiting[2:]
        running = []
        for name, variables in pair:
            path = folder / f"{name}.json"
            words = ["env", "drift", "-o", str(path), "steps=10", "device=cpu"]
            running.append((name, path, start(words, variables)))
        for name, path, process in running:
            out, error = process.communicate(timeout=300)
            # No progress is shown where nobody looks.
            assert (process.returncode, error) == (0, "") and str(path) in out
            found[name] = fingerprint.read(path)
    return found


def start(words, variables):
    env = {
        k: v for k, v in os.environ.items() if k not in {k for m in MACHINES.values() for k in m}
    }
    return subprocess.Popen(
        [sys.executable, "-m", "stabsweep", *words],
        env={**env, **PLAIN, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def apart(found):
    """The operations that differ."""
    return {row.name for row in found.operations if row.word != "bitwise"}


@pytest.mark.slow
def test_the_same_machine_twice_is_bitwise(machines):
    found = fingerprint.compare(machines["plain"], machines["again"])
    assert found.word == "bitwise" and not found.changes
    assert machines["plain"].digest == machines["again"].digest
    assert not machines["plain"].unrepeated


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two threads", "no vectors", "other kernels"])
def test_another_machine_drifts_as_expected(machines, name):
    found = fingerprint.compare(machines["plain"], machines[name])
    assert found.exit_code == 0 and found.word in ("bitwise", "expected")
    assert {row.word for row in found.operations} <= {"bitwise", "expected"}
    assert "fp32" not in found.sentence or "keep their verdict" in found.sentence
    for row in found.operations:
        assert row.relative < {"fp32": 3e-6, "fp64": 5e-15}[row.precision]


@pytest.mark.slow
def test_threads_and_vectors_are_named(machines):
    threads = fingerprint.compare(machines["plain"], machines["two threads"])
    assert "threads" in {change.what for change in threads.changes}
    # Nothing is split that has no order of summation.
    assert not apart(threads) & {"exp", "quadratic form", "Adam step"}
    kernels = fingerprint.compare(machines["plain"], machines["other kernels"])
    keys = {change.what for change in kernels.changes}
    assert keys == {"MKL_CBWR", "ONEDNN_MAX_CPU_ISA"}
    # Torch's own kernels are neither MKL's nor oneDNN's.
    assert not apart(kernels) & {"sum", "exp", "softmax", "layer norm", "Adam step"}


@pytest.mark.slow
def test_without_vectors_the_last_digits_differ(machines):
    plain, other = machines["plain"], machines["no vectors"]
    if plain.environment["torch"]["cpu_capability"] == "DEFAULT":
        pytest.skip("this CPU has no vectors to do without")
    found = fingerprint.compare(plain, other)
    assert found.word == "expected" and "softmax" in apart(found)
    assert "vector level" in {change.what for change in found.changes}
    assert any(row.first_step is not None for row in found.courses)
