"""How numbers are written for a reader: learning rates, losses, shares, times."""

from __future__ import annotations

import math
from decimal import ROUND_DOWN, Decimal


def rate(value: float | None, *, down: bool = False, digits: int = 2) -> str:
    """A learning rate or loss with two digits, in one style: `1.8e-3`, plain from 0.1 to 999.

    Args:
        value: the number; None or NaN is written as an en dash.
        down: round towards zero, for a recommendation that must not grow by being written.
        digits: how many, at least two; more than two are written only where they are not zero.

    >>> rate(0.00183), rate(0.25), rate(12.0), rate(3.4e8), rate(0.0199, down=True)
    ('1.8e-3', '0.25', '12', '3.4e8', '1.9e-2')
    """
    if value is None or math.isnan(value):
        return "–"
    if value == 0 or math.isinf(value):
        return f"{value:g}"
    value = round_rate(value, down=down, digits=digits)
    if 0.1 <= abs(value) < 1000:
        return f"{value:g}"
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    kept = len(mantissa) - digits + 2
    return f"{mantissa[:kept]}{mantissa[kept:].rstrip('0')}e{int(exponent)}"


def span(low: float | None, high: float | None) -> str:
    """Two ends with two digits, or with as many as tell them apart.

    >>> span(0.0042, 0.0061), span(1.97, 2.04), span(1.99996, 2.00001)
    ('4.2e-3 to 6.1e-3', '1.97 to 2.04', '1.99996 to 2.00001')
    """
    for digits in range(2, 7):
        ends = rate(low, digits=digits), rate(high, digits=digits)
        if ends[0] != ends[1]:
            break
    return " to ".join(ends)


def round_rate(value: float, *, down: bool = False, digits: int = 2) -> float:
    """A number rounded to two (or more) significant digits, to the nearest or towards zero.

    >>> round_rate(0.0199, down=True), round_rate(0.0199)
    (0.019, 0.02)
    """
    if not down or value == 0 or not math.isfinite(value):
        return float(f"{value:.{digits - 1}e}")
    # In decimal digits as written: 0.29 * 100 is 28.999... and would become 0.28.
    written = Decimal(repr(float(value)))
    unit = Decimal(1).scaleb(written.adjusted() - digits + 1)
    return float(written.quantize(unit, ROUND_DOWN))


def loss(value: float | None) -> str:
    """A loss with three digits, plain from 0.01 to 999, so that a column of them aligns.

    >>> loss(1.7834), loss(-8.2), loss(0.0213), loss(3.4e-5), loss(2.4e18), loss(None)
    ('1.78', '-8.20', '0.0213', '3.40e-5', '2.40e18', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    if value == 0 or math.isinf(value):
        return f"{value:g}"
    if 0.01 <= abs(value) < 999.5:
        return f"{value:#.3g}".rstrip(".")
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def share(value: float) -> str:
    """A share in whole per cent, but never `0%` or `100%` for what is not quite that.

    >>> share(0.5), share(0.001), share(0.999), share(1.0)
    ('50%', '<1%', '>99%', '100%')
    """
    if 0 < value < 0.01:
        return "<1%"
    if 0.99 < value < 1:
        return ">99%"
    return f"{value:.0%}"


def duration(seconds: float) -> str:
    """A time as a person says it.

    >>> duration(4.2), duration(75), duration(4000)
    ('4 s', '1 min 15 s', '1 h 06 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def plural(count: int, noun: str) -> str:
    """A count with its noun: `1 seed`, `3 seeds`, `4,096 trials`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
