"""Which verdicts changed when traces were judged again: counts as a matrix, and examples."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence

from stabsweep.numerals import rate
from stabsweep.records import Record
from stabsweep.report.conclusion import value_text
from stabsweep.report.style import STYLES, clean, outcome
from stabsweep.report.summary import WIDTH

MAX_EXAMPLES = 12

Pair = tuple[Record, Record]
"""One trial before and after."""


def changed(before: Iterable[Record], after: Iterable[Record]) -> list[Pair]:
    """The trials whose verdict is another one, in their order.

    Args:
        before: records, in the order of their trials.
        after: records of the same trials.
    """
    pairs = zip(before, after, strict=True)
    return [(old, new) for old, new in pairs if outcome(old) != outcome(new)]


def change_table(pairs: Sequence[Pair]) -> list[str]:
    """How many trials went from which verdict to which: a line a verdict before."""
    counts = Counter((outcome(old), outcome(new)) for old, new in pairs)
    olds = [name for name in STYLES if any(old == name for old, _ in counts)]
    news = [name for name in STYLES if any(new == name for _, new in counts)]
    table = [["from \\ to", *(STYLES[name].label for name in news)]]
    for old in olds:
        numbers = [str(counts[old, new] or ".") for new in news]
        table.append([STYLES[old].label, *numbers])
    widths = [max(len(line[n]) for line in table) for n in range(len(table[0]))]
    return [
        "  " + "  ".join(
            text.ljust(width) if n == 0 else text.rjust(width)
            for n, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in table
    ]  # fmt: skip


def examples(pairs: Sequence[Pair], most: int = MAX_EXAMPLES) -> list[str]:
    """Some of the trials that changed: each kind of change in turn, with point and evidence."""
    waiting: dict[tuple[str, str], list[Pair]] = {}
    for old, new in pairs:
        waiting.setdefault((outcome(old), outcome(new)), []).append((old, new))
    chosen: list[Pair] = []
    while len(chosen) < min(most, len(pairs)):
        for queue in waiting.values():
            if queue and len(chosen) < most:
                chosen.append(queue.pop(0))
    lines = []
    for old, new in sorted(chosen, key=lambda pair: pair[0].trial):
        others = {n: v for n, v in new.point.items() if n != "lr"}
        words = f"lr={rate(new.lr)}"
        words += "".join(f" {clean(n)}={value_text(v)}" for n, v in others.items())
        kind = f"{STYLES[outcome(old)].label} -> {STYLES[outcome(new)].label}"
        lines.append(f"  trial {new.trial}: {kind}, {words} seed={new.seed}")
        lines += textwrap.wrap(
            clean(new.reason), WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 4
        )
    if len(pairs) > len(chosen):
        lines.append(f"  ... {len(pairs) - len(chosen)} more")
    return lines
