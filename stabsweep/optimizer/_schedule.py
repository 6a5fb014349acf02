"""The learning rate of every step: warmup, then a schedule."""

from __future__ import annotations

import numpy as np

from stabsweep.records import Array

SCHEDULES = ("constant", "cosine", "cosine_tenth", "linear", "step")
"""What follows the warmup: the peak rate; half a cosine down to 0; one down to a tenth of the peak;
a line down to 0; the peak rate, a tenth of it after half of the remaining steps and a hundredth
after three quarters."""


def learning_rates(
    steps: Array, lr: Array, warmup_steps: Array, horizon: int, schedule: str = "constant"
) -> Array:
    """The learning rate at given steps; the arguments broadcast.

    During warmup step t (from 0) has the rate lr * (t + 1) / warmup_steps: never 0, and the peak at
    the last warmup step. No schedule reaches 0 within the horizon either, so no step is wasted.

    Args:
        steps: optimizer updates done before the step, from 0.
        lr: peak rates.
        warmup_steps: 0 or 1 is no warmup.
        horizon: steps of the whole run.
        schedule: one of `SCHEDULES`.

    >>> learning_rates(np.arange(4), np.array(1.0), np.array(2), horizon=4).tolist()
    [0.5, 1.0, 1.0, 1.0]
    """
    warmup = np.minimum(1.0, (steps + 1) / np.maximum(warmup_steps, 1))
    peak_step = np.maximum(warmup_steps, 1) - 1
    past = np.clip((steps - peak_step) / np.maximum(horizon - peak_step, 1), 0.0, 1.0)
    if schedule == "cosine":
        factor = 0.5 * (1 + np.cos(np.pi * past))
    elif schedule == "cosine_tenth":
        factor = 0.1 + 0.45 * (1 + np.cos(np.pi * past))
    elif schedule == "linear":
        factor = 1 - past
    elif schedule == "step":
        factor = np.where(past < 0.5, 1.0, np.where(past < 0.75, 0.1, 0.01))
    else:
        factor = 1.0
    return lr * warmup * factor
