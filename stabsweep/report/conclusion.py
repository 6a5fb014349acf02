"""What a sweep says, in sentences: the headline, the words for a row, what else to know."""

from __future__ import annotations

from stabsweep.limits import CHOICES
from stabsweep.numerals import plural, rate, round_rate, span
from stabsweep.pick import CLIP_SHARE, Pick
from stabsweep.records import Point, Value
from stabsweep.region import Cell, Region, Row
from stabsweep.report.style import clean, outcome

PHRASES = {"warmup_steps": "{} warmup steps", "optimizer": "{}", "init": "{} init"}
"""How an axis is said where "name value" would sound odd."""

POCKET_GAP = 1.6
"""Factor between the first failure and a success above it that makes the success a pocket: wider
than the rough zone of an edge (0.16 decades where we measured it)."""


def value_text(value: Value) -> str:
    """The value of an axis as a reader writes it: up to six digits, `off` for none.

    An axis has no finer values (`Axis.at`), so no two rows have one label.

    >>> value_text(0.999), value_text(3.1622776), value_text(1e-8), value_text(1e6)
    ('0.999', '3.16228', '1.0e-8', '1.0e6')
    >>> value_text(20000), value_text(0.0), value_text(None)
    ('20000', '0', 'off')
    """
    if value is None:
        return "off"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return clean(value, 24)
    if isinstance(value, int) or float(value).is_integer() and abs(value) < 1e4:
        return f"{int(value)}"
    return f"{value:.6g}" if 0.01 <= abs(value) < 1e4 else rate(value, digits=6)


def setting(values: Point) -> str:
    """A row's values in words: `50 warmup steps, clip norm off`; empty without row axes."""
    words = []
    for name, value in values.items():
        phrase = PHRASES.get(name, clean(name).replace("_", " ") + " {}")
        words.append(phrase.replace("{}", value_text(value)))
    return ", ".join(words)


def row_label(row: Row) -> str:
    """A row's values without their names: `adamw · 10`; a range where a row is a bin."""
    labels = []
    for name, value in row.values.items():
        found = {r.point.get(name) for cell in row.cells for r in cell.records}
        numbers = [v for v in found if isinstance(v, int | float)]
        if len(found) > 1 and len(numbers) == len(found):
            labels.append(f"{value_text(min(numbers))} to {value_text(max(numbers))}")
        else:
            labels.append(value_text(value))
    return " · ".join(labels)


def axis_label(region: Region) -> str:
    """What `row_label` lists: `optimizer · clip norm`."""
    return " · ".join(clean(a.name).replace("_", " ") for a in region.space.row_axes)


def picked_row(region: Region, pick: Pick) -> int | None:
    """Index of the row that the pick is in; None without a pick."""
    if not pick.is_ok:
        return None
    moved = None
    for number, row in enumerate(region.rows):
        for record in (record for cell in row.cells for record in cell.judged):
            if all(pick.hyperparameters[n] == record.point[n] for n in row.values):
                if round_rate(record.lr, down=True) == pick.lr:
                    return number
                # A pick that failed its test has moved down, to a rate that the sweep did not try.
                moved = number if moved is None else moved
    return moved


def lr_range(region: Region) -> tuple[float, float]:
    """Lowest and highest learning rate of the space, or of the trials where they go beyond."""
    axis = region.space.axes["lr"]
    ends = [v for v in (axis.low, axis.high, *axis.values) if isinstance(v, int | float)]
    ends += [record.lr for record in region.records]
    return min(ends), max(ends)


def conclusion(region: Region, pick: Pick, subject: str = "") -> str:
    """The sweep's answer in one sentence: the headline of every report.

    Args:
        region: what the trials say.
        pick: the recommendation.
        subject: what was swept, e.g. `AdamW on transformer`.
    """
    number = picked_row(region, pick)
    if number is None or pick.lr is None:
        text = _without_pick(region)
    else:
        row = region.rows[number]
        word = "with" if next(iter(row.values), "") in CHOICES else "at"
        at = f" {word} {setting(row.values)}" if row.values else ""
        chosen = rate(pick.lr, down=True)
        if row.edge.status == "found":
            below = f"{pick.margin_decades or 0:.1f} decades below"
            text = f"stable up to {rate(row.edge.lr)}{at}; pick {chosen}, {below}"
        else:
            top = rate(row.edge.low)
            text = f"stable up to {top}{at}, the highest rate tried; pick {chosen}"
    subject = clean(subject, 60)
    return f"{subject}: {text}" if subject else text[0].upper() + text[1:]


def _without_pick(region: Region) -> str:
    low, high = lr_range(region)
    where = f"in {span(low, high)}"
    judged = [r for r in region.records if r.state != "failed" and r.verdict.is_judged]
    if not region.records:
        return "nothing known yet, no trial was finished"
    if not judged:
        return f"nothing known, no trial {where} could be judged"
    if any(r.verdict.is_stable for r in judged) and region.best_row is None:
        return f"nothing learned at any learning rate {where}"
    return f"no safe learning rate {where}"


def proof_text(pick: Pick) -> str:
    """What the pick went through after it was found: `Survives 11 of 12 ...`; empty if nothing."""
    proofs = pick.proofs
    if not pick.is_ok or not proofs:
        return ""
    text = f"Survives {proofs['held']} of {proofs['tests']} runs that it was not chosen by"
    failed = "; ".join(proofs["failed"])
    return f"{text}. Failed: {failed}." if failed else f"{text}."


def remarks(region: Region, pick: Pick, num_planned: int | None = None) -> list[str]:
    """What a reader should know before trusting the answer, a sentence each.

    The pick's warnings, then what they do not say: where clipping sets the step (first, if it does
    at most rates), trials that failed with an error or could not be judged, and stable trials
    far above the edge.
    """
    found = list(pick.warnings)
    clipped, share = _clip_axis(region)
    if clipped:
        found.insert(0 if share > 0.5 else len(found), clipped)
    missing = (num_planned or 0) - len(region.records)
    if missing > 0 and not any(text.startswith("Only ") for text in found):
        found.append(f"Only {len(region.records)} of {num_planned} trials were run.")
    failed = [r for r in region.records if outcome(r) == "failed"]
    if failed:
        what = clean(failed[0].error or "no message")
        found.append(f"{plural(len(failed), 'trial')} ended in an error, the first: {what}")
    for name, why in (
        (
            "invalid",
            "had a loss that was not finite whatever the rate: look at input, init and model.",
        ),
        ("cut_short", "ended early, stopped for the loss alone: left out of edges and losses."),
        (
            "peak_not_reached",
            "ended inside the warmup or too soon after it and could not be judged: raise horizon.",
        ),
    ):
        count = sum(outcome(r) == name for r in region.records)
        if count:
            found.append(f"{plural(count, 'trial')} {why}")
    pocket = find_pocket(region)
    if pocket:
        found.append(
            f"{plural(len(pocket), 'trial')} learned above the edge (lowest at "
            f"{rate(min(pocket))}): a pocket, not a place to train."
        )
    return found


def clip_share(part: Row | Cell) -> float:
    """Share of clipped steps, the mean over the trials that held; 0 when none did."""
    cells = part.cells if isinstance(part, Row) else (part,)
    shares = [r.clip_share for c in cells for r in c.judged if r.verdict.is_stable]
    return sum(shares) / len(shares) if shares else 0.0


def _clip_axis(region: Region) -> tuple[str, float]:
    """Where most steps are clipped and the rate only scales what is left; at which share of rates.

    Above the edge every clipped run is clipped all along, so only rates that held are counted.
    """
    held = [[cell for cell in row.cells if cell.num_stable] for row in region.rows]
    engaged = [[cell for cell in cells if clip_share(cell) > CLIP_SHARE] for cells in held]
    count = sum(map(len, engaged))
    if not count:
        return "", 0.0
    fullest = sorted(range(len(held)), key=lambda n: -len(engaged[n]))
    rows = [setting(region.rows[n].values) for n in fullest if engaged[n]]
    more = [plural(len(rows) - 2, "more row")] if len(rows) > 2 else []
    where = "; ".join([*rows[:2], *more])
    total = sum(map(len, held))
    text = (
        f"The learning rate axis is really a clip axis at {count} of {plural(total, 'rate')} that "
        f"held, where most steps were clipped{': ' if where else ''}{where}."
    )
    return text, count / total


def find_pocket(region: Region) -> list[float]:
    """Learning rates of trials that learned above rates of their row at which every seed failed.

    One failure may be noise, so it takes two trials and a factor of `POCKET_GAP` without success.
    """
    rates = []
    for row in region.rows:
        failed: list[float] = []
        is_above = False
        for cell in row.cells:
            held = [r.lr for r in cell.judged if r.verdict.is_learned]
            if held and len(failed) >= 2 and cell.lr >= POCKET_GAP * failed[0]:
                is_above = True
            rates += held if is_above else []
            failed = [] if cell.num_stable else failed + [r.lr for r in cell.judged]
    return rates
