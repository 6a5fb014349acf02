from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap

import pytest
import torch

from stabsweep import executor
from stabsweep.errors import BadInput
from stabsweep.executor import Local, Process, auto, process
from tests.laws import make_setup

CPU = torch.device("cpu")
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="it forks")


@pytest.fixture
def build():
    built = []

    def of(name="auto", num_workers=2, device=CPU):
        found, why = executor.build(
            name, num_workers, device, lambda split: make_setup("vector"), (), "cohort", 4, print
        )
        built.append(found)
        return type(found), why

    yield of
    for one in built:
        one.close()


@LINUX
def test_auto_takes_processes_where_there_are_cores(build):
    assert build() == (Process, "executor: 2 processes, one thread each")
    assert build(num_workers=1) == (Local, "")


@LINUX
def test_what_is_asked_for_is_given(build):
    assert build("process", 1) == (Process, "executor: 1 process, one thread each")
    assert build("local") == (Local, "executor: this process, 1 thread (as asked)")


def test_a_gpu_has_one_process(build):
    cuda = torch.device("cuda")
    assert build(device=cuda) == (Local, "")
    with pytest.raises(BadInput, match="executor=process is not possible: trials train on cuda"):
        build("process", device=cuda)


@pytest.mark.parametrize(
    "where, name, value, reason",
    [
        (auto.sys, "platform", "darwin", "it forks, which is safe on Linux alone"),
        (torch.cuda, "is_available", lambda: True, "CUDA_VISIBLE_DEVICES="),
    ],
)
def test_where_a_fork_is_not_safe_there_is_none(build, monkeypatch, where, name, value, reason):
    monkeypatch.setattr(where, name, value)
    kind, why = build()
    assert kind is Local and why.startswith("executor: this process, 1 thread (") and reason in why
    with pytest.raises(BadInput, match="use executor=auto or local") as caught:
        build("process")
    assert reason in str(caught.value)


@LINUX
def test_a_system_that_gives_no_process_has_one(build, monkeypatch):
    """The second is refused: the first is ended."""
    fork, made = os.fork, []

    def refuse():
        if made:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        made.append(fork())
        return made[0]

    monkeypatch.setattr(process.Worker.__init__.__globals__["os"], "fork", refuse)
    kind, why = build()
    assert kind is Local and "gives no process (Resource temporarily unavailable)" in why
    with pytest.raises(ChildProcessError):
        os.waitpid(made[0], 0)


def test_an_unknown_name_is_answered_with_those_that_there_are(build):
    with pytest.raises(BadInput, match="executor='proces' is not known: use one of auto, local"):
        build("proces")


# ------------------------------------------------------------------------------ cores


@pytest.fixture
def quota(tmp_path, monkeypatch):
    """Writes the files of a container."""
    monkeypatch.setattr(auto, "GROUP", tmp_path / "group")
    monkeypatch.setattr(auto, "OWN_GROUP", tmp_path / "own")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)

    def write(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_text(text)

    return write


NEW, OLD = "group/cpu.max", ("group/cpu/cpu.cfs_quota_us", "group/cpu/cpu.cfs_period_us")


@pytest.mark.parametrize(
    "files, cores",
    [
        ({}, 8),
        ({NEW: "max 100000\n"}, 8),
        ({NEW: "300000 100000\n"}, 3),
        ({NEW: "250000 100000\n"}, 2),
        ({NEW: "50000 100000\n"}, 1),
        ({NEW: "1600000 100000\n"}, 8),
        ({NEW: "rubbish", "own": "rubbish"}, 8),
        ({OLD[0]: "-1\n", OLD[1]: "100000\n"}, 8),
        ({OLD[0]: "200000\n", OLD[1]: "100000\n"}, 2),
        ({OLD[0]: "200000\n", OLD[1]: "0\n"}, 8),
        ({"own": "0::/a/b\n", "group/a/cpu.max": "200000 100000\n"}, 2),
        ({"own": "3:cpu:/\n0::/a/b\n", "group/a/b/cpu.max": "100000 50000\n", NEW: "max 1"}, 2),
        ({"own": "0::/elsewhere\n", NEW: "300000 100000\n"}, 3),
    ],
)
def test_a_container_may_have_fewer_cores_than_torch_has_threads(quota, files, cores):
    quota(files)
    assert executor.num_cores() == cores


@LINUX
@pytest.mark.parametrize("limit", ["OMP_NUM_THREADS", "affinity"])
def test_one_core_may_be_all_that_is_ours(limit):
    code = textwrap.dedent(f"""
        import os
        if {limit == "affinity"}:
            os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
        from stabsweep.executor import auto
        auto.GROUP = auto.OWN_GROUP = auto.Path("/nowhere")
        print(auto.num_cores())
    """)
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    environment |= {limit: "1"}
    found = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert found.strip() == "1"
