"""Every optimizer's own numbers as axes of a sweep, stacked and in the plain loop."""

from __future__ import annotations

import numpy as np
import pytest

from stabsweep import sweep
from stabsweep.limits import LIMITS
from stabsweep.optimizer import OPTIMIZERS

# Long enough for weights to cross zero: before that Lion follows one sign whatever its betas.
RATES = {"lion": [0.2, 0.3]}
VALUES = {"eps": [1e-8, 0.1], "weight_decay": [0.0, 0.5], "momentum_decay": [4e-3, 0.5]}
# The momentum of Muon belongs to matrices, which a bare vector has none of.
MODELS = {("muon", "momentum"): ({"name": "mlp", "depth": 2, "width": 4}, "digits")}
AXES = [(name, key) for name, cls in OPTIMIZERS.items() for key in cls.defaults]


def losses(name, key, values, engine):
    """Final loss of each value, at one rate."""
    extra = {"momentum": 0.5} if key == "dampening" else {}
    model, task = MODELS.get((name, key), ("vector", "quadratic"))
    result = sweep(
        model,
        task,
        {"lr": RATES.get(name, [0.01, 0.02]), key: values},
        {"name": name, **extra},
        horizon=12,
        num_trials=4,
        seeds=1,
        batch_size=1,
        engine=engine,
        device="cpu",
        precision="fp64",
        watcher="off",
    )
    table = result.records.sort_values([key, "lr"])
    assert sorted(set(table[key])) == values
    return table["final_loss"].to_numpy()


def test_every_number_of_an_optimizer_has_a_limit():
    assert {key for _, key in AXES} <= set(LIMITS)


@pytest.mark.parametrize("name, key", AXES)
def test_every_number_of_an_optimizer_can_be_swept(name, key):
    values = VALUES.get(key, [0.3, 0.9])
    stacked = losses(name, key, values, "cohort")
    assert len(set(stacked)) == 4, "the axis changes nothing"
    np.testing.assert_allclose(stacked, losses(name, key, values, "loop"), rtol=1e-9)
