"""stabsweep: find the edge of stable training before you pay for the real run."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stabsweep.api import resume, sweep
    from stabsweep.comparison import compare
    from stabsweep.errors import BadInput
    from stabsweep.guard import GradientGuard, Outcome
    from stabsweep.pick import Pick, find_pick
    from stabsweep.records import Record, Trace, Verdict
    from stabsweep.region import Region, find_region
    from stabsweep.rejudging import rejudge
    from stabsweep.replay import find_replay
    from stabsweep.result import Result, load
    from stabsweep.sharpening import find_sharpening
    from stabsweep.space import Axis, Space
    from stabsweep.task import Batches
    from stabsweep.verdict import Thresholds, judge

__version__ = "0.1.0"

__all__ = [
    "Axis",
    "BadInput",
    "Batches",
    "GradientGuard",
    "Outcome",
    "Pick",
    "Record",
    "Region",
    "Result",
    "Space",
    "Thresholds",
    "Trace",
    "Verdict",
    "compare",
    "find_pick",
    "find_region",
    "find_replay",
    "find_sharpening",
    "judge",
    "load",
    "rejudge",
    "resume",
    "sweep",
]

_HOMES = {
    "errors": ["BadInput"],
    "guard": ["GradientGuard", "Outcome"],
    "pick": ["Pick", "find_pick"],
    "records": ["Record", "Trace", "Verdict"],
    "region": ["Region", "find_region"],
    "result": ["Result", "load"],
    "space": ["Axis", "Space"],
    "task": ["Batches"],
    "verdict": ["Thresholds", "judge"],
    "api": ["resume", "sweep"],
    "comparison": ["compare"],
    "rejudging": ["rejudge"],
    "replay": ["find_replay"],
    "sharpening": ["find_sharpening"],
}


def __getattr__(name: str) -> Any:
    """Loads a public name when it is first used: `stabsweep --help` need not wait for torch."""
    for module, names in _HOMES.items():
        if name in names:
            with warnings.catch_warnings():
                # In a notebook, of Optuna's own progress bar, which is never shown.
                warnings.filterwarnings("ignore", message="IProgress not found")
                return getattr(import_module(f"stabsweep.{module}"), name)
    raise AttributeError(f"module 'stabsweep' has no attribute {name!r}")
