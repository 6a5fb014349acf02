"""Every experiment runs, and shows what its file says."""

import re

import numpy as np
import pytest
import yaml

from stabsweep import model, task
from stabsweep.cli import main
from stabsweep.config import find_folder
from stabsweep.records import Record, Verdict
from stabsweep.region import find_region
from stabsweep.result import load
from stabsweep.space import Space


def run(tmp_path, name, *overrides):
    """The region that an experiment shows, smaller by overrides."""
    folder = tmp_path / "run"
    # 1 where there is no safe rate: some show nothing but failure.
    assert main([f"experiment={name}", f"hydra.run.dir={folder}", *overrides]) in (0, 1)
    return load(folder).region


def edges_of(region):
    """Row -> edge; the highest rate tried where it was not reached."""
    return {tuple(row.values.values()): row.edge.lr or row.edge.low for row in region.rows}


def test_quadratic_edges(tmp_path, capsys):
    assert main(["experiment=quadratic_edges", f"hydra.run.dir={tmp_path / 'run'}"]) == 0
    rows = load(tmp_path / "run").region.rows
    edges = {row.values["momentum"]: row.edge.lr for row in rows}
    for momentum, edge in edges.items():
        assert edge == pytest.approx(2 * (1 + momentum), rel=0.02)


@pytest.mark.slow
def test_quadratic_edges_of_a_frozen_adam(tmp_path, capsys):
    """The command in the comment of the file."""
    path = find_folder() / "experiment" / "quadratic_edges.yaml"
    comment = " ".join(line[1:] for line in path.read_text().splitlines() if line.startswith("#"))
    given = comment.partition("by adding ")[2].replace("'", "").split()
    edges = edges_of(run(tmp_path, "quadratic_edges", *given))
    assert len(edges) == 4
    for (beta1,), edge in edges.items():
        assert edge / 1e30 == pytest.approx(2 * (1 + beta1) / (1 - beta1), rel=0.05)


def test_uv_catapult(tmp_path, capsys):
    assert main(["experiment=uv_catapult", f"hydra.run.dir={tmp_path / 'run'}"]) == 0
    region = load(tmp_path / "run").region
    signature = task.build("uv").signature
    start = model.initialize(lambda: model.build("uv", signature), 0).double()
    curvature = sum(p.square().sum().item() for p in start.parameters()) / 256
    assert region.rows[0].edge.lr == pytest.approx(4 / curvature, rel=0.02)
    expected = {(0.0, 2.0): Verdict.CONVERGED, (2.1, 3.96): Verdict.RECOVERED}
    expected[4.04, 99.0] = Verdict.DIVERGED
    for (low, high), verdict in expected.items():
        here = [r for r in region.records if low < r.point["lr"] * curvature < high]
        assert len(here) > 50 and {r.verdict for r in here} == {verdict}
    assert max(r.peak_loss / r.initial_loss for r in region.records if r.verdict.is_learned) > 20


def test_every_experiment_starts_with_its_command_and_is_tested():
    for path in (find_folder() / "experiment").glob("*.yaml"):
        lines = path.read_text().splitlines()
        assert lines[1] == f"# python -m stabsweep experiment={path.stem}"
        assert f"test_{path.stem}" in globals()
        assert yaml.safe_load(path.read_text())["name"] == path.stem


def test_clip_hides(tmp_path, capsys):
    assert main(["experiment=clip_hides", f"hydra.run.dir={tmp_path / 'run'}"]) == 0
    clipped, free = load(tmp_path / "run").region.rows
    for row, word in ((clipped, "oscillating"), (free, "diverged")):
        assert row.edge.lr == pytest.approx(2, rel=0.08)
        beyond = [r for cell in row.cells if cell.lr > 2.05 for r in cell.judged]
        assert len(beyond) > 30 and {r.verdict.label for r in beyond} == {word}


@pytest.mark.slow
def test_fractal(tmp_path, capsys):
    axis = yaml.safe_load((find_folder() / "experiment" / "fractal.yaml").read_text())["space"]
    rates = axis["output_lr"]["values"]
    assert rates == [float(f"{lr:.4g}") for lr in np.geomspace(1e-3, 1e6, 32)]
    # Every second row and column; the whole is 0.56 and 0.54.
    some = [f"space.output_lr.values={rates[1::2]}", f"+space.lr.values={rates[1::2]}"]
    records = run(tmp_path, "fractal", *(text.replace(" ", "") for text in some)).records
    trained = [r for r in records if r.state == "complete" and r.final_loss < r.initial_loss]
    stable = [r for r in records if r.verdict.is_stable]
    assert len(records) == 256
    assert len(trained) / len(records) == pytest.approx(0.55, abs=0.04)
    assert len(stable) / len(records) == pytest.approx(0.55, abs=0.04)
    # A finder that stops at four times the first loss would have stopped some of these.
    assert any(r.peak_loss > 4 * r.initial_loss for r in trained)


@pytest.mark.slow
def test_warmup_adam(tmp_path, capsys):
    rates = "+space.lr.values=[0.04,0.07,0.11]"
    region = run(tmp_path, "warmup_adam", rates, "seeds=2", "num_trials=24")
    held = {tuple(r.values.values()): sum(c.num_stable for c in r.cells) for r in region.rows}
    # So few trials place no edge, but at the same rates and seeds more hold, and learn more.
    assert held["gi_adam", 0] > held["adam", 0] and held["adam", 50] >= held["adam", 0]
    learned = dict.fromkeys(held, 0.0)
    for record in region.records:
        row = record.point["optimizer"], record.point["warmup_steps"]
        learned[row] += max(record.blind_loss - record.final_loss, 0.0)
    assert learned["adam", 50] > 1.5 * learned["adam", 0]
    assert learned["gi_adam", 0] > 1.5 * learned["adam", 0]


@pytest.mark.slow
def test_clip_rnn(tmp_path, capsys):
    small = ["space.clip_norm.values=[0.25,1.0,null]", "num_trials=60"]
    region = run(tmp_path, "clip_rnn", *small)
    edges = edges_of(region)
    for step in ("row", "pixel"):
        assert edges[step, 0.25] > edges[step, 1.0] > edges[step, None]
        assert edges[step, 0.25] > 5 * edges[step, None]
    assert edges["row", None] > 3 * edges["pixel", None]
    held = [r for r in region.records if r.verdict.is_stable and r.point["clip_norm"] == 0.25]
    assert all(r.clip_share > 0.9 for r in held)
    assert "The learning rate axis is really a clip axis at" in " ".join(
        capsys.readouterr().out.split()
    )


@pytest.mark.slow
def test_clippers(tmp_path, capsys):
    few = ["+space.lr.values=[0.001,0.01,0.3]", "space.clipper.values=[norm,autoclip,agc]"]
    region = run(tmp_path, "clippers", *few, "seeds=1", "num_trials=9", "horizon=100")
    held = {row.values["clipper"]: row.cells[-1].num_stable for row in region.rows}
    assert held == {"norm": 0, "autoclip": 0, "agc": 1}
    share = {r.point["clipper"]: r.clip_share for r in region.records if r.lr == 0.001}
    assert share["agc"] == 1 and share["autoclip"] > 0.8


@pytest.mark.slow
def test_post_vs_pre_ln(tmp_path, capsys):
    # At seven rates a row one trial at the edge, which rounding decides, would decide the edge.
    region = run(tmp_path, "post_vs_pre_ln", "seeds=1", "num_trials=40")
    edges = edges_of(region)
    assert edges["pre", 1] > 4 * edges["post", 75] and edges["post", 75] > edges["post", 1]
    failed = [r for r in region.records if r.point["norm"] == "post" and not r.verdict.is_stable]
    # Some at the edge learn a little before they are lost: those are degraded, not stuck.
    stuck = [r for r in failed if min(r.best_loss, r.final_loss) > 0.95 * r.blind_loss]
    assert len(stuck) >= 8 and {r.verdict for r in stuck} == {Verdict.COLLAPSED}


@pytest.mark.slow
def test_qk_norm(tmp_path, capsys):
    region = run(tmp_path, "qk_norm", "seeds=1", "num_trials=16")
    edges = edges_of(region)
    assert edges[True,] > 1.5 * edges[False,]
    without, normed = (lr_sensitivity(row) for row in region.rows)
    assert normed < without


def lr_sensitivity(row):
    """Wortsman et al. 2023 (arXiv 2309.14322): mean of min(loss, loss at the start) - best."""
    records = [record for cell in row.cells for record in cell.judged]
    losses = [min(r.final_loss or r.initial_loss, r.initial_loss) for r in records]
    return np.mean(losses) - row.best.loss


def test_lr_sensitivity_is_that_of_the_paper():
    records = [
        Record(n, {"lr": 10.0**n}, 0, Verdict.CONVERGED, final_loss=loss, initial_loss=7.0)
        for n, loss in enumerate((4.5, 4.0, 9.0))
    ]
    (row,) = find_region(Space.parse({"lr": {"low": 1.0, "high": 100.0}}), records).rows
    assert lr_sensitivity(row) == pytest.approx(1.1667, abs=1e-4)


@pytest.mark.slow
def test_relu_rnn_overflow(tmp_path, capsys):
    region = run(tmp_path, "relu_rnn_overflow", "num_trials=30", "horizon=30")
    edges = edges_of(region)
    for init in ("spectral(0.9)", "spectral(1.3)"):
        assert edges[init, 1.0] > 2 * edges[init, None]
    top = [r for r in region.records if r.lr == 30 and r.point["init"] != "spectral(2.2)"]
    assert {r.verdict for r in top} == {Verdict.DIVERGED}
    assert all(r.bad_step < 5 for r in top)  # Clipped or not.
    hopeless = [r for r in region.records if r.point["init"] == "spectral(2.2)"]
    assert {(r.verdict, r.bad_step) for r in hopeless} == {(Verdict.INVALID, 0)}


@pytest.mark.slow
def test_spectral_rnn(tmp_path, capsys):
    inits = "['spectral(0.3)','spectral(1.0)','spectral(2.5)']"
    small = [f"space.init.values={inits}", "num_trials=18", "horizon=100", "progress=plain"]
    region = run(tmp_path, "spectral_rnn", *small)
    vanishing, keeping, exploding = region.rows
    assert vanishing.best.loss > keeping.best.loss
    assert exploding.edge.lr is None or exploding.edge.lr < 0.1 * keeping.edge.lr
    said = re.findall(r"init spectral.*through 64 steps x (\S+) \(rho", capsys.readouterr().err)
    ratios = [float(text) for text in said]
    assert ratios[0] < 1e-30 and 1e-8 < ratios[1] < 1 and ratios[2] > 1e4


def test_quick(tmp_path, capsys):
    small = ["model.width=16", "horizon=64", "device=cpu"]
    region = run(tmp_path, "quick", *small)
    found = load(tmp_path / "run")
    assert found.pick.is_ok and found.pick.lr in [cell.lr for cell in region.rows[0].cells]
    assert [*found.cost] == ["bracket", "sweep", "constant", "confirm"]
    # A line search, and short trials around it.
    assert 25 * 10 < found.cost["bracket"] <= 25 * 10 + 15 * 32 and found.cost["sweep"] <= 8 * 64
    assert found.cost["constant"] == 64
    # Three seeds three times as long at most five rates; one is usual.
    assert found.cost["confirm"] in [9 * 64 * count for count in range(1, 6)]
    assert "trial-steps: bracket" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rnn", "transformer"])
def test_quick_is_for_any_model(tmp_path, capsys, name):
    small = {"rnn": ["model.hidden=8", "task.step=row"], "transformer": ["model.width=16"]}[name]
    words = [*small, f"model={name}", "horizon=32", "confirm=false", "device=cpu"]
    region = run(tmp_path, "quick", *words)
    config = load(tmp_path / "run").config
    assert config["model"]["name"] == name
    assert config["bracket"] is False and len(config["space"]["lr"]["values"]) == 8
    assert len(region.records) == 8
