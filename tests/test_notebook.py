"""A sweep in a cell of a notebook, run by a real kernel without widgets."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient", reason="nbclient, which runs notebooks, is missing")
pytest.importorskip("ipykernel", reason="ipykernel, the kernel of notebooks, is missing")
nbformat = pytest.importorskip("nbformat", reason="nbformat comes with nbclient and is missing")

ROOT = Path(__file__).resolve().parents[1]

CELL = """
import torch
import stabsweep

class Model(torch.nn.Linear):
    def __init__(self):
        super().__init__(64, 10)

Model.__qualname__ = "<script>alert(1)</script>"
stabsweep.sweep(
    Model, "digits", {"lr": {"low": 1e-2, "high": 1e3}}, "sgd", horizon=150, num_trials=24,
    device="cpu", cohort_size=4,
)
"""

SHELL = 'type(get_ipython()).__name__, "ipywidgets" in __import__("sys").modules'


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """No kernel, profile or startup file of the user's own, and this very package."""
    for name in ("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.mark.slow
def test_a_cell_shows_one_output_that_is_updated_and_then_the_answer(alone, tmp_path):
    shown = []

    class Client(nbclient.NotebookClient):
        def process_message(self, msg, cell, cell_index):
            content = msg["content"]
            if "display_id" in content.get("transient", {}):
                shown.append((msg["msg_type"], content["transient"]["display_id"], content["data"]))
            return super().process_message(msg, cell, cell_index)

    cells = [nbformat.v4.new_code_cell(source) for source in (CELL, SHELL)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    Client(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()

    # The positive control: it was a notebook's shell, without widgets.
    assert cells[1].outputs[0].data["text/plain"] == "('ZMQInteractiveShell', False)"

    # Nothing on stdout or stderr, and of all frames only the last is left.
    progress, answer = cells[0].outputs
    assert (progress.output_type, answer.output_type) == ("display_data", "execute_result")
    assert [kind for kind, _, _ in shown[:2]] == ["display_data", "update_display_data"]
    assert {kind for kind, _, _ in shown[1:]} == {"update_display_data"}
    assert len({display_id for _, display_id, _ in shown}) == 1
    first, last = shown[0][2]["text/plain"], shown[-1][2]["text/plain"]
    assert "0 of at most 24" in first and "sgd on <script>" in first
    assert progress.data["text/plain"] == last
    note, how, ending, constant, confirmed, line = last.splitlines()
    assert note.startswith("engine cohort") and how.startswith("engine traced")
    assert constant.startswith("constant: ")
    assert confirmed.startswith("confirm: ")
    assert " of 24 trials: the edge is known to " in ending
    assert " 100% | " in line
    assert "converged " in line and " | edge " in line and " | best " in line

    headline = answer.data["text/plain"].removeprefix("<Result: ").removesuffix(">")
    assert "alert(1)" in headline and "stable up to" in headline
    page = answer.data["text/html"]
    (image,) = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    assert base64.b64decode(image).startswith(b"\x89PNG") and len(image) < 400_000
    for html in (progress.data["text/html"], page):
        assert "&lt;script&gt;alert(1)" in html and "<script" not in html
    assert headline.split("</script>: ")[1] in page
