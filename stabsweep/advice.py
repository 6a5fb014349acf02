"""The checklist of the Deep Learning Tuning Playbook, carried out on what a sweep has found.

Godbole et al. 2023, github.com/google-research/tuning_playbook: whether warmup and clipping move
the edge, what to try first where training is unstable, and how the pick compares with the constant
that everybody uses. The best rate at the border and the share of clipped steps, also on that list,
are said by `pick` and by the report.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from stabsweep.edge import Edge
from stabsweep.numerals import loss, plural, rate
from stabsweep.pick import Pick
from stabsweep.proof import CONSTANT, Proof
from stabsweep.records import Value, Verdict
from stabsweep.region import Region
from stabsweep.shift import MOVED, SAME, Shift
from stabsweep.theory import answer_row

THIN_DECADES = 0.5
"""A margin below this is thin. Ours: edges move by 0.16 decades with the seed, and by more between
a small model and the real one."""

EARLY = 0.2
"""Runs that diverge within this share of the horizon diverge early. Ours: warmups are shorter."""

MOVERS = {"warmup_steps": ("Warmup", "steps")} | dict.fromkeys(
    ("clip_norm", "clip_value", "clip_factor", "clip_percentile", "clip_z", "clipper"),
    ("Clipping", ""),
)
"""Axis -> what it is called, and the unit of its values."""

CONSTANTS = {"sgd": 1e-2} | dict.fromkeys(("adam", "adamw", "radam", "nadam", "rmsprop"), 1e-3)
"""Optimizer -> the rate that is used without a search: Kingma & Ba 2015 for Adam and what followed
it; for SGD the default of Keras."""


def usual_constant(rule: str) -> float | None:
    """The rate that everybody uses for an optimizer; None where there is none."""
    return CONSTANTS.get(rule)


def find_advice(
    region: Region, pick: Pick, fixed: Mapping[str, Value], proofs: Sequence[Proof] = ()
) -> list[str]:
    """What the checklist has to say, a sentence or two each; empty when it has nothing.

    Args:
        region: what the trials say.
        pick: the recommendation.
        fixed: `optimizer`, `warmup_steps`, `clip_norm` and `clipper` (by default `norm`) as they
            hold where no axis sweeps them.
        proofs: what was run after the sweep.
    """
    moves = (_moves(region, pick, name) for name in MOVERS)
    constant = _against_constant(region, pick, fixed, proofs)
    found = [_first_cure(region, pick, fixed), *moves, constant]
    return [text for text in found if text]


def _moves(region: Region, pick: Pick, name: str) -> str:
    """Whether an axis moves the edge, from its first to its last value in the answer's rows.

    Of names, which have no order, from the one with the lowest edge to that with the highest.
    """
    answer = answer_row(region, pick)
    if name not in region.space.axes or answer is None:
        return ""
    others = {axis: value for axis, value in answer[0].values.items() if axis != name}
    rows = [row for row in region.rows if all(row.values[n] == v for n, v in others.items())]
    if len(rows) < 2:
        return ""
    has_order = not any(isinstance(row.values[name], str) for row in rows)
    if not has_order:
        rows = sorted(rows, key=lambda row: row.edge.lr or row.edge.low or 0.0)
    first, last = rows[0], rows[-1]
    says = Shift(others, first, last).says
    if says not in (MOVED, SAME) or (says == SAME and not has_order):
        return ""
    what, unit = MOVERS[name]
    ends = [f"{_edge(row.edge)} {_at(row.values[name], unit)}" for row in (first, last)]
    if says == MOVED:
        return f"{what} moves the edge: {ends[0]}, {ends[1]}."
    return f"{what} does not clearly move the edge: {ends[0]}, {ends[1]}; the intervals overlap."


def _edge(edge: Edge) -> str:
    known = {"above": f"above {rate(edge.low)}", "below": f"below {rate(edge.high)}"}
    return known.get(edge.status, rate(edge.lr))


def _at(value: Value, unit: str) -> str:
    if isinstance(value, str):
        return f"with {value}"
    return "without" if value is None else f"at {value:g}{f' {unit}' if unit else ''}"


def _first_cure(region: Region, pick: Pick, fixed: Mapping[str, Value]) -> str:
    """What to try first where training is unstable or the margin thin.

    The playbook's order: warmup against early instability, clipping against that of the middle of
    training; a better-behaved model when both are in use.
    """
    judged = [r for r in region.records if r.state != "failed" and r.verdict.is_judged]
    failed = [record for record in judged if not record.verdict.is_stable]
    if pick.is_ok:
        margin = pick.margin_decades if (pick.edge or {}).get("status") == "found" else None
        if margin is None or margin >= THIN_DECADES:
            return ""
        why = f"The margin is thin ({rate(10**margin)}x)."
    elif failed and (region.best_row is not None or len(failed) == len(judged)):
        why = "Training is unstable."
    else:
        return ""
    horizon = max(record.horizon for record in judged)
    at = [r.steps if r.bad_step is None else r.bad_step for r in _diverged(region)]
    middle = statistics.median(at) if at else None
    is_early = middle is None or middle < EARLY * horizon
    when = f" (runs diverged at step {middle:.0f} of {horizon} in the median)" if at else ""
    cures = []
    if not fixed.get("warmup_steps") and "warmup_steps" not in region.space.axes:
        cures.append(f"warmup_steps={max(horizon // 10, 2)}")
    is_clipped = fixed.get("clip_norm") is not None or fixed.get("clipper", "norm") != "norm"
    if not is_clipped and not {"clip_norm", "clipper"} & {*region.space.axes}:
        cures.append("clip_norm=1")
    cures = cures if is_early else cures[::-1]
    if not cures:
        return (
            f"{why} Warmup and clipping are tried already: next come init, init_gain and the "
            "model's own norms."
        )
    return f"{why} Try first {', then '.join(cures)}{when}."


def _diverged(region: Region) -> Iterator:
    return (record for record in region.records if record.verdict is Verdict.DIVERGED)


def _against_constant(
    region: Region, pick: Pick, fixed: Mapping[str, Value], proofs: Sequence[Proof]
) -> str:
    """How the usual constant did beside the best rate that was swept."""
    answer = answer_row(region, pick)
    constant = CONSTANTS.get(str(pick.hyperparameters.get("optimizer", fixed.get("optimizer"))))
    if not pick.is_ok or answer is None or constant is None or pick.lr is None:
        return ""
    if rate(constant) == rate(pick.lr):
        return f"The pick is the usual constant, {rate(constant)}."
    row, what = answer[0], f"The usual constant, {rate(constant)},"
    tried = [proof.record for proof in proofs if proof.test == CONSTANT]
    tried += [r for cell in row.cells if cell.lr == constant for r in cell.judged]
    failed = [record for record in tried if not record.verdict.is_stable]
    if failed:
        return f"{what} fails with {len(failed)} of {plural(len(tried), 'seed')}."
    losses = [record.final_loss for record in tried if record.final_loss is not None]
    if losses and row.best:
        mean, best = loss(statistics.fmean(losses)), f"{loss(row.best.loss)} at {rate(row.best.lr)}"
        return f"{what} ends at {mean}; the best of the sweep at {best}."
    if pick.ceiling_lr and constant > pick.ceiling_lr:
        return f"{what} lies above {rate(pick.ceiling_lr)}, where the margin ends."
    return ""
