import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression

from stabsweep import sweep
from stabsweep.records import Verdict
from stabsweep.task.regression import Regression


def test_it_is_the_diabetes_set_with_every_column_standardised():
    task = Regression()
    inputs_ND, targets_N1 = task.batch(torch.arange(442))
    assert task.num_examples == 442 and inputs_ND.shape == (442, 10)
    measured, progress = load_diabetes(return_X_y=True, scaled=False)
    for mine, raw in ((inputs_ND, measured), (targets_N1, progress[:, None])):
        expected = (raw - raw.mean(0)) / raw.std(0)
        np.testing.assert_allclose(mine.numpy(), expected, rtol=1e-5, atol=1e-5)


def test_blind_loss_is_the_variance_that_the_best_constant_leaves():
    task = Regression()
    targets_N1 = task.batch(torch.arange(442))[1]
    best = targets_N1.mean().expand_as(targets_N1)
    assert task.criterion(best, targets_N1).item() == pytest.approx(task.blind_loss, rel=1e-5)
    assert task.criterion(best + 0.1, targets_N1) > task.blind_loss
    assert task.blind_loss == pytest.approx(1, abs=1e-6)


def test_linear_regression_leaves_what_the_docstring_says():
    inputs_ND, targets_N1 = (x.numpy() for x in Regression().batch(torch.arange(442)))
    fitted = LinearRegression().fit(inputs_ND, targets_N1)
    assert 1 - fitted.score(inputs_ND, targets_N1) == pytest.approx(0.482, abs=1e-3)


def test_an_mlp_learns_it_where_the_rate_is_right_and_diverges_where_it_is_too_large():
    result = sweep(
        {"name": "mlp", "depth": 2, "width": 16},
        "regression",
        {"lr": [1e-2, 1e-1, 10.0]},
        "sgd",
        horizon=100,
        num_trials=3,
        seeds=1,
        watcher="off",
    )
    records = sorted(result.region.records, key=lambda record: record.point["lr"])
    verdicts = [(record.verdict.name, record.final_loss) for record in records]
    assert records[1].verdict.is_learned and records[1].final_loss < 0.6, verdicts
    assert records[2].verdict is Verdict.DIVERGED, verdicts
