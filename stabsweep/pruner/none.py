"""No pruning: every trial runs to its horizon."""

from __future__ import annotations

import optuna


class Unpruned(optuna.pruners.NopPruner):
    """Stops nothing: for whole curves of what diverges, at the price of training it to the end."""
