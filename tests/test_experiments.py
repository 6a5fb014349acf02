"""Every experiment runs, and shows what its file says."""

import pytest
import yaml

from stabsweep import model, task
from stabsweep.cli import main
from stabsweep.config import find_folder
from stabsweep.records import Verdict
from stabsweep.result import load


def test_quadratic_edges(tmp_path, capsys):
    assert main(["experiment=quadratic_edges", f"hydra.run.dir={tmp_path / 'run'}"]) == 0
    rows = load(tmp_path / "run").region.rows
    edges = {row.values["momentum"]: row.edge.lr for row in rows}
    for momentum, edge in edges.items():
        assert edge == pytest.approx(2 * (1 + momentum), rel=0.02)


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
