"""What must hold on a GPU; every test skips itself where there is none."""

import pytest
import torch

import stabsweep

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

COMMON = {"horizon": 50, "num_trials": 24, "seeds": 2, "batch_size": 16, "watcher": "off"}
SPACE = {"lr": {"low": 1e-3, "high": 10.0}, "warmup_steps": [0, 10]}
MODELS = [("mlp", "digits"), ("rnn", "sequential_digits"), ("transformer", "text")]


@pytest.mark.parametrize("model, task", MODELS)
def test_gpu_and_cpu_draw_the_same_map_in_float64(model, task):
    common = {**COMMON, "precision": "fp64"}
    cpu, gpu = (stabsweep.sweep(model, task, SPACE, device=d, **common) for d in ("cpu", "cuda"))
    for ours, theirs in zip(gpu.region.records, cpu.region.records, strict=True):
        assert ours.verdict is theirs.verdict
        if ours.verdict.is_learned:
            assert ours.final_loss == pytest.approx(theirs.final_loss, rel=1e-6)


@pytest.mark.parametrize("model, task", MODELS)
def test_cohort_and_loop_agree_on_the_gpu(model, task):
    common = {**COMMON, "precision": "fp64", "num_trials": 8, "device": "cuda"}
    stacked, plain = (
        stabsweep.sweep(model, task, {"lr": [1e-3, 1e-2]}, engine=engine, **common)
        for engine in ("cohort", "loop")
    )
    for ours, theirs in zip(stacked.region.records, plain.region.records, strict=True):
        assert ours.final_loss == pytest.approx(theirs.final_loss, rel=1e-6)


@pytest.mark.parametrize("memory_gb", [None, 0])
@pytest.mark.parametrize("engine", ["cohort", "loop"])
def test_batches_of_ones_own_train_on_the_gpu_as_on_the_cpu(engine, memory_gb):
    generator = torch.Generator().manual_seed(0)
    loader = [{"x": torch.randn(16, 6, generator=generator)} for _ in range(20)]

    def loss(model, batch):
        return (model(batch["x"]) - batch["x"].sin()).square().mean()

    common = {**COMMON, "precision": "fp64", "num_trials": 8, "engine": engine}
    on_cpu, on_gpu = (
        stabsweep.sweep(
            lambda: torch.nn.Sequential(
                torch.nn.Linear(6, 9), torch.nn.Tanh(), torch.nn.Linear(9, 6)
            ),
            stabsweep.Batches(loader, loss, memory_gb=memory_gb),
            {"lr": [1e-3, 1e-2]},
            device=device,
            **common,
        )
        for device in ("cpu", "cuda")
    )
    for ours, theirs in zip(on_gpu.region.records, on_cpu.region.records, strict=True):
        assert ours.final_loss == pytest.approx(theirs.final_loss, rel=1e-6)


def test_auto_takes_the_gpu():
    from stabsweep.plan import find_device

    assert find_device("auto").type == "cuda"
    torch.cuda.reset_peak_memory_stats()
    stabsweep.sweep("mlp", "digits", SPACE, **COMMON)
    assert torch.cuda.max_memory_allocated() > 0


@pytest.mark.parametrize("check_every, expected", [(1, 20), (10, 2)])
def test_a_guard_waits_for_the_gpu_once_a_check_at_most(check_every, expected, tmp_path):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    net.cuda()
    guard = stabsweep.GradientGuard(
        net,
        torch.optim.AdamW(net.parameters(), 1e-2),
        clip_norm=1.0,
        log=tmp_path,
        check_every=check_every,
        policy="warn",
        progress="off",
        tensorboard=False,
    )
    inputs = torch.randn(20, 32, 8, device="cuda")
    guard.step(net(inputs[0]).square().mean())
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with pytest.warns(UserWarning, match="synchronizing") as waits:
            for x in inputs:
                guard.step(net(x).square().mean())
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(waits) <= expected
    guard.close()
    assert len((tmp_path / "steps.jsonl").read_text().splitlines()) == 21


def test_a_guard_skips_on_the_gpu_under_a_scaler(tmp_path):
    torch.manual_seed(0)
    net = torch.nn.Linear(8, 1).cuda()
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**40)
    guard = stabsweep.GradientGuard(
        net, torch.optim.AdamW(net.parameters(), 1e-3), scaler=scaler, progress="off"
    )
    seen = []
    for _ in range(40):
        with torch.autocast("cuda", torch.float16):
            loss = net(torch.randn(32, 8, device="cuda")).square().mean()
        seen.append(guard.step(loss))
    assert seen[0] is stabsweep.Outcome.SKIPPED_OVERFLOW and seen[-1].is_stepped
    before = net.weight.detach().clone()
    broken = torch.full((4, 8), float("nan"), device="cuda")
    assert guard.step(net(broken).mean()).is_skipped
    assert torch.equal(before, net.weight)
    assert guard.diagnosis.cause.name == "DATA"
