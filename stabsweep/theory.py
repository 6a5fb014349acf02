"""The edge of linear theory beside the measured one: what it says, and where it is kept."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from stabsweep.numerals import rate
from stabsweep.pick import Pick
from stabsweep.records import Point
from stabsweep.region import Region, Row


@dataclass(frozen=True)
class Theory:
    """What linear theory says of one row: see `stabsweep.curvature`.

    It is no safe rate. It takes the curvature of the first weights, which moves as soon as they
    do; it knows no warmup, no clipping and no noise; a measured edge above it is as common as one
    below.

    Attributes:
        values: the row: axis -> value.
        eigenvalue: largest of the Hessian there, preconditioned for rules with moments.
        lr: the learning rate beyond which a quadratic of that curvature is unstable.
        formula: the rule's, `2 (1 + m) / lambda`.
    """

    values: Point
    eigenvalue: float
    lr: float
    formula: str

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "values": dict(self.values)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Theory:
        """What `as_dict` wrote.

        Raises:
            KeyError, TypeError, ValueError: it has another form.
        """
        numbers = float(plain["eigenvalue"]), float(plain["lr"])
        return cls(dict(plain["values"]), *numbers, str(plain["formula"]))

    def row(self, region: Region) -> Row | None:
        """Its row of a region; None when that has no such row."""
        return next((row for row in region.rows if row.values == self.values), None)

    def decades(self, region: Region) -> float | None:
        """log10 of the measured edge over that of theory; None when none was met."""
        row = self.row(region)
        return math.log10(row.edge.lr / self.lr) if row and row.edge.lr else None

    def sentence(self, region: Region) -> str:
        """Both edges, in words."""
        word = "lambda_P" if "lambda_P" in self.formula else "lambda"
        where = f"at the first weights ({word} {rate(self.eigenvalue)})"
        text = f"{self.formula} = {rate(self.lr)} {where}"
        row, apart = self.row(region), self.decades(region)
        if apart is not None:
            side = "above" if apart >= 0 else "below"
            return f"{text}: the measured edge is {abs(apart):.2f} decades {side}."
        if row is not None and row.edge.status == "above":
            return f"{text}: no edge was met up to {rate(row.edge.low)}."
        if row is not None and row.edge.status == "below":
            return f"{text}: nothing held, down to {rate(row.edge.high)}."
        return f"{text}."


def answer_row(region: Region, pick: Pick) -> tuple[Row, Point] | None:
    """The row that an answer speaks of, and a point of it: the pick's, else the best one's.

    Where rows are bins the point is one that was tried.
    """
    for row in region.rows if pick.is_ok else ():
        for record in (record for cell in row.cells for record in cell.records):
            if all(pick.hyperparameters.get(n) == record.point[n] for n in row.values):
                return row, record.point
    row = region.best_row
    return (row, row.best.records[0].point) if row and row.best else None
