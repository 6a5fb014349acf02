"""What a map says of one learning rate, to be held against what happens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stabsweep.edge import Edge
from stabsweep.numerals import rate, span
from stabsweep.records import Value, Verdict
from stabsweep.region import Row
from stabsweep.result import Result


@dataclass(frozen=True)
class Prediction:
    """What a sweep expects of a run.

    Attributes:
        lr: the peak rate of the run.
        expected: `stable`, `unstable`, or `open` where the map cannot tell.
        text: why, in a few words: `2x below the safe edge 0.1 (edge 0.2)`.
        edge: of the row that the run lies in; None where the map has no such row.
        folder: where the map is.
        horizon: steps of its trials.
    """

    lr: float
    expected: str
    text: str
    edge: Edge | None = None
    folder: Path | None = None
    horizon: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        edge = self.edge or Edge("unknown")
        return {
            "folder": str(self.folder) if self.folder else None,
            "lr": self.lr,
            "expected": self.expected,
            "edge_lr": edge.lr,
            "low": edge.low,
            "high": edge.high,
            "safe_lr": edge.safe_lr,
            "text": self.text,
            "horizon": self.horizon,
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Prediction:
        """The prediction that `as_dict` gave."""
        keys = {"lr": "edge_lr", "low": "low", "high": "high", "safe_lr": "safe_lr"}
        edge = Edge("known", **{name: plain[key] for name, key in keys.items()})
        folder = Path(plain["folder"]) if plain["folder"] else None
        lr, expected, text = (plain[key] for key in ("lr", "expected", "text"))
        return cls(lr, expected, text, edge, folder, plain["horizon"])

    def compared(self, verdict: Verdict, num_steps: int) -> str:
        """What happened, against what was expected, in a sentence.

        Args:
            verdict: on the run.
            num_steps: updates that it made.
        """
        said = f"The map expected {self.expected} ({self.text})"
        if self.expected == "open":
            said = f"The map could not tell ({self.text})"
        if not verdict.is_judged:
            return f"{said}; the run cannot be judged: {verdict.label}."
        was = "stable" if verdict.is_stable else "unstable"
        agrees = "as it was" if was == self.expected else f"the run was {was}"
        longer = ""
        if was == "unstable" and self.expected == "stable" and num_steps > self.horizon:
            longer = f" Its trials had {self.horizon} steps: an edge can fall in longer runs."
        return f"{said}; {agrees}: {verdict.label}.{longer}"


def predict(
    result: Result, lr: float, values: Mapping[str, Value], changed: Sequence[str] = ()
) -> Prediction:
    """What a sweep says of a rate.

    Args:
        result: of the sweep.
        lr: the rate.
        values: the other hyperparameters of the run; those that the sweep has as axes choose the
            row.
        changed: what the run does otherwise than the sweep's trials did, so that it is not theirs.
    """
    axes = [axis.name for axis in result.region.space.row_axes]
    row = next(
        (r for r in result.region.rows if all(r.values[n] == values.get(n) for n in axes)), None
    )
    horizon = int(result.config.get("horizon") or 0)
    if changed:
        text = f"its trials had another {', '.join(changed)}"
        return Prediction(lr, "open", text, row.edge if row else None, result.folder, horizon)
    if row is None:
        where = ", ".join(f"{name}={values.get(name)}" for name in axes)
        return Prediction(lr, "open", f"it has no row {where}", None, result.folder, horizon)
    return Prediction(lr, *_expected(row, lr), row.edge, result.folder, horizon)


def _expected(row: Row, lr: float) -> tuple[str, str]:
    edge = row.edge
    if edge.status == "below":
        return "unstable", "nothing in its row held"
    if edge.status == "unknown":
        return "open", "its row has no edge"
    lowest = min((cell.lr for cell in row.cells), default=lr)
    safe = edge.safe_lr or 0.0
    if lr <= safe:
        met = f"edge {rate(edge.lr)}" if edge.lr else "no edge met"
        far = "" if lr >= lowest else f"; below its lowest rate {rate(lowest)}"
        return "stable", f"{rate(safe / lr)}x below the safe edge {rate(safe)}, {met}{far}"
    if edge.lr is None:
        return "open", f"above the highest rate tried, {rate(edge.low)}"
    interval = f"95% interval {span(edge.low, edge.high)}"
    if edge.high is not None and lr > edge.high:
        return "unstable", f"{rate(lr / edge.lr)}x above the edge {rate(edge.lr)}, {interval}"
    place = "between the safe edge" if lr <= edge.lr else "above the safe edge"
    return "open", f"{place} {rate(safe)} and near the edge {rate(edge.lr)}, {interval}"
