"""Every experiment runs, and shows what its file says."""

import pytest
import yaml

from stabsweep.cli import main
from stabsweep.config import find_folder
from stabsweep.result import load


def test_quadratic_edges(tmp_path, capsys):
    assert main(["experiment=quadratic_edges", f"hydra.run.dir={tmp_path / 'run'}"]) == 0
    rows = load(tmp_path / "run").region.rows
    edges = {row.values["momentum"]: row.edge.lr for row in rows}
    for momentum, edge in edges.items():
        assert edge == pytest.approx(2 * (1 + momentum), rel=0.02)


def test_every_experiment_starts_with_its_command_and_is_tested():
    for path in (find_folder() / "experiment").glob("*.yaml"):
        lines = path.read_text().splitlines()
        assert lines[1] == f"# python -m stabsweep experiment={path.stem}"
        assert f"test_{path.stem}" in globals()
        assert yaml.safe_load(path.read_text())["name"] == path.stem
