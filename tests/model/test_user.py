from __future__ import annotations

import sys

import pytest
import torch
from torch import nn

from stabsweep import model
from stabsweep.errors import BadInput
from stabsweep.signature import Signature

VECTOR = Signature("vector", num_inputs=4, num_outputs=2)


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module `own_models` in the working folder."""
    (tmp_path / "own_part.py").write_text("WIDTH = 5\n")
    (tmp_path / "own_models.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Linear):\n"
        "    def __init__(self, width=3):\n"
        "        super().__init__(4, width)\n"
        "def told(signature):\n"
        "    return nn.Linear(signature.num_inputs, signature.num_outputs)\n"
        "def late():\n"
        "    from own_part import WIDTH\n"
        "    return Net(WIDTH)\n"
        "def wrong():\n"
        "    return 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    yield
    for name in ("own_models", "own_part"):
        sys.modules.pop(name, None)


def build(target, **args):
    return model.build("user", VECTOR, target=f"own_models:{target}", args=args)


def test_a_class_of_the_working_folder_is_built_with_its_arguments(own):
    assert build("Net").out_features == 3
    assert build("Net", width=7).out_features == 7


def test_a_function_that_asks_for_it_is_told_the_shapes(own):
    found = build("told")
    assert (found.in_features, found.out_features) == (4, 2)


def test_what_is_imported_as_late_as_the_call_is_found(own):
    assert build("late").out_features == 5


def test_every_call_draws_anew_from_the_seed(own):
    def weights(seed):
        return model.initialize(lambda: build("Net"), seed).weight

    assert torch.equal(weights(0), weights(0))
    assert not torch.equal(weights(0), weights(1))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "model=user needs model.target=module:attribute"),
        ({"target": "own_models"}, "model.target='own_models' is not module:attribute"),
        ({"target": "own_modles:Net"}, "module own_modles cannot be imported"),
        ({"target": "own_models:Nut"}, "did you mean own_models:Net"),
        ({"target": "own_models:Net", "args": {"wide": 1}}, r"cannot be called with \(wide=1\)"),
        ({"target": "own_models:Net", "args": 3}, "model.args=3 is no mapping"),
        ({"target": "own_models:wrong"}, "gives int: give a class that extends torch.nn"),
        ({"taget": "own_models:Net"}, "did you mean target"),
    ],
)
def test_what_cannot_be_built_says_why_in_one_line(own, given, says):
    with pytest.raises(BadInput, match=says) as caught:
        model.build("user", VECTOR, **given)
    assert "\n" not in str(caught.value)


def test_it_is_a_module_like_any_other(own):
    assert isinstance(build("Net"), nn.Module)
