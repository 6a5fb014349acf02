"""Two real processes over gloo: they skip together, and wait for each other never."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROGRAM = """
    import json, os, sys, torch, torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel as DDP
    from stabsweep.guard import GradientGuard
    rank, log, kind = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    model = DDP(net) if kind == "ddp" else net
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    guard = GradientGuard(
        model, optimizer, clip_norm=1.0, log=log, progress="off", tensorboard=False,
        policy="rollback", checkpoint_every=4,
    )
    torch.manual_seed(rank)
    outcomes = []
    for step in range(12):
        x = torch.randn(8, 4)
        y = x.sum(1, keepdim=True)
        if rank == 1 and step == 6:
            x[2, 1] = float("nan")
        hook = None
        if rank == 1 and step == 10:
            hook = net[2].weight.register_hook(lambda g: g * float("inf"))
        outcomes.append(guard.step((model(x) - y).pow(2).mean(), (x, y)).label)
        if hook: hook.remove()
    guard.close()
    found = guard.diagnosis
    print(json.dumps({
        "outcomes": outcomes, "steps": guard.num_steps, "rank": found.rank,
        "cause": found.cause.label, "events": [m for _, _, m in guard.events],
        "weights": [p.tolist() for p in net.parameters()], "lr": optimizer.param_groups[0]["lr"],
    }))
    dist.destroy_process_group()
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", "plain"])
def test_what_one_rank_meets_both_pass_over(tmp_path: Path, kind: str) -> None:
    """`plain` has no averaged gradients, so that only the guard can make them agree."""
    root = Path(__file__).parents[2]
    env = {
        **os.environ,
        "PYTHONPATH": str(root),
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(PROGRAM), str(rank), str(tmp_path), kind],
            cwd=root,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    done = [process.communicate(timeout=120) for process in processes]
    assert all(process.returncode == 0 for process in processes), done
    zero, one = (json.loads(out.splitlines()[-1]) for out, _ in done)
    expected = ["stepped"] * 12
    expected[6], expected[10] = "skipped_not_finite", "rolled_back"
    assert zero["outcomes"] == one["outcomes"] == expected
    assert zero["steps"] == one["steps"] == 8 + 1
    assert zero["rank"] == one["rank"], "both say who saw it"
    assert zero["lr"] == one["lr"] == 5e-3
    if kind == "ddp":
        assert zero["weights"] == one["weights"]
    else:
        assert zero["rank"] == 1
        assert "batch[0] (1 NaN of 32 entries" in zero["events"][0]
        assert zero["cause"] == "gradient"
    # One of them writes.
    names = sorted(os.listdir(tmp_path / "checkpoints"))
    assert names == ["step-00000000.pt", "step-00000004.pt", "step-00000008.pt"]
    assert len((tmp_path / "steps.jsonl").read_text().splitlines()) == 12


SHARDED = """
    import os, sys, torch, torch.distributed as dist
    from torch import nn
    from torch.distributed.fsdp import fully_shard
    from stabsweep.errors import BadInput
    from stabsweep.guard import GradientGuard
    dist.init_process_group("gloo", rank=0, world_size=1)
    mesh = dist.device_mesh.init_device_mesh("cpu", (1,))
    net = fully_shard(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1)), mesh=mesh)
    try:
        GradientGuard(net, torch.optim.SGD(net.parameters(), 0.1))
    except BadInput as error:
        print(error)
    dist.destroy_process_group()
"""


@pytest.mark.slow
def test_parameters_that_are_really_sharded_are_refused_in_a_line() -> None:
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    env |= {"GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SHARDED)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1, done.stdout
    assert "parameter 0.weight is sharded (DTensor)" in done.stdout
