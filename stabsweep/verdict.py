"""The verdict on a training run, from its curves alone: `judge` for a run, `reason_to_stop` early.

Both compare differences and growth, never bare ratios: a loss may be negative or close to zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stabsweep.evidence import DEFAULTS, LIMIT, Evidence, Thresholds, hold_steps
from stabsweep.numerals import plural, rate
from stabsweep.records import Array, Trace, Verdict, finite


@dataclass(frozen=True)
class Judgement:
    """A verdict and what it rests on; a number that does not exist is NaN.

    Attributes:
        verdict: what training did.
        reason: the evidence in one sentence, with its step and numbers.
        provisional: a stall: only the other trials of the row can tell too slow from collapsed.
        bad_step: first step with a non-finite loss or gradient.
        final_loss: mean loss over the last tenth of the steps.
        best_loss: lowest mean over as many steps.
        peak_loss: highest finite loss.
        clip_share: share of the steps in which clipping engaged.
        spike_share: share of the steps that are spikes.
        update_ratio: median update over weights in the last half.
        last_update_ratio: update over weights of the last step before `bad_step`.
        noise: spread of the loss from step to step in the last half, trend removed.
        overflows: steps that a gradient scaler left out.
    """

    verdict: Verdict
    reason: str
    provisional: bool = False
    bad_step: int | None = None
    final_loss: float = math.nan
    best_loss: float = math.nan
    peak_loss: float = math.nan
    clip_share: float = 0.0
    spike_share: float = 0.0
    update_ratio: float = math.nan
    last_update_ratio: float = math.nan
    noise: float = math.nan
    overflows: int = 0

    def as_fields(self) -> dict[str, Any]:
        """What a `Record` keeps of it, under the record's names; what is not finite is None."""
        return {
            "verdict": self.verdict,
            "reason": self.reason,
            "provisional": self.provisional,
            "final_loss": finite(self.final_loss),
            "best_loss": finite(self.best_loss),
            "peak_loss": finite(self.peak_loss),
            "bad_step": self.bad_step,
            "last_update_ratio": finite(self.last_update_ratio),
            "clip_share": self.clip_share,
            "spike_share": self.spike_share,
            "overflows": self.overflows,
        }


def judge(trace: Trace, thresholds: Thresholds = DEFAULTS) -> Judgement:
    """The verdict on a training run; the first line that holds decides.

    Words are those of `Thresholds`; "above start" means beyond noise and `above`, "rising" that
    each quarter of the last half lies above the one before, beyond noise. In lines 3, 4, 8, 10 and
    14 the end is read without spikes that are over before the last few steps: one hard batch in the
    last tenth would else decide.

    | # | what is seen | verdict |
    |---|---|---|
    | 1 | initial loss, first loss or first gradient not finite: no rate was used yet | invalid |
    | 2 | a loss or gradient not finite later, at whatever step | diverged |
    | 2a | a loss scale that collapses: sixteen of twenty steps overflow | diverged |
    | 3 | rising, not levelling off, and above start | diverged |
    | 4 | final beyond `absurd`; oscillating if line 6 sees it as well | diverged |
    | 4a | final as far below start, and falling faster and faster | diverged |
    | 5 | the steps end before the warmup does, or too soon after it | peak_not_reached |
    | 6 | flat, clipping never lets go, each step a good part of the weights | oscillating |
    | 7 | flat, each step changes the loss by a good part of all that was gained | oscillating |
    | 8 | rising like an exponential, though still below start | degraded |
    | 9 | learned, then lost nine tenths of the gain or more | collapsed |
    | 10 | learned, then lost more than 0.3 of the gain | degraded |
    | 11 | learned and kept, more spikes than the limit, in several bursts | spiky |
    | 12 | learned and kept; peak well above start, or for a moment far above it | recovered |
    | 13 | learned and kept | converged |
    | 14 | not learned; peak above start, final above start, or gradients dead | collapsed |
    | 15 | not learned, undisturbed: a stall, settled by its row | too_slow, provisional |

    It misleads where a trace cannot tell: line 15, and lines 3 and 8 for a run that would have
    turned after its horizon. Under clipping, an oscillation that is small beside what was learned
    is `converged`. Multiplying the losses by a constant changes no verdict; adding one changes only
    what is measured in scales or |base|: `learned`, `above`, `disturbed`, `absurd`.

    Args:
        trace: the curves, of at least one step.
        thresholds: the numbers.

    Raises:
        ValueError: the trace has no step.
    """
    loss = np.asarray(trace.loss, np.float64)
    if not len(loss):
        raise ValueError("trace has no steps: a verdict needs at least one loss")
    num_clipped = int(np.count_nonzero(np.asarray(trace.clip_coef) < 1))
    clip_share = num_clipped / max(len(trace.clip_coef), 1)
    finite, overflowed = np.isfinite(loss), ~np.isfinite(trace.grad_norm)
    skipped, collapse = np.zeros(len(loss), bool), None
    if overflowed.any():
        skipped = trace.skipped
        finite &= ~overflowed | skipped
        collapse = scale_collapse(skipped, thresholds)
    if math.isfinite(trace.initial_loss) and finite.all() and collapse is not None:
        return _judge_scale(trace, skipped, collapse, clip_share)
    if not math.isfinite(trace.initial_loss) or not finite.all():
        return _judge_not_finite(trace, loss, finite, clip_share, thresholds)
    peak = float(loss.max())
    if peak > LIMIT or loss.min() < -LIMIT:
        loss = np.clip(loss, -LIMIT, LIMIT)
    seen = Evidence(trace, loss, thresholds)
    verdict, reason = _first_line(seen, trace, thresholds)
    return Judgement(
        verdict,
        reason,
        provisional=verdict is Verdict.TOO_SLOW,
        final_loss=seen.final,
        best_loss=seen.best,
        peak_loss=peak,
        clip_share=clip_share,
        spike_share=seen.spike_share,
        update_ratio=seen.update_ratio,
        noise=seen.noise,
        overflows=int(np.count_nonzero(skipped)),
    )


def scale_collapse(skipped: Array, thresholds: Thresholds = DEFAULTS) -> int | None:
    """The step at which a loss scale has collapsed, or None.

    A scaler halves its scale at every overflow. Some at the start are how it finds its scale, and
    one now and then is normal; a run of them means that the gradient itself has left the format.

    Args:
        skipped: (T,) the steps that overflowed, see `Trace.skipped`.
        thresholds: the numbers.
    """
    t = thresholds
    count = np.cumsum(skipped)
    recent = count - np.concatenate([np.zeros(t.scale_window, int), count])[: len(count)]
    steps = np.flatnonzero(recent >= max(t.scale_overflows, 1))
    return int(steps[0]) if len(steps) else None


def reason_to_stop(
    steps: Sequence[int] | Array,
    losses: Sequence[float] | Array,
    *,
    initial_loss: float,
    horizon: int,
    warmup_steps: int = 0,
    blind_loss: float | None = None,
    thresholds: Thresholds = DEFAULTS,
) -> str | None:
    """Why a running trial cannot become stable any more, or None while it still may.

    It holds for every step as for a coarse series, such as the median loss of each rung. A stall
    at or below the start never stops a trial: it may only be slow. A run that is stopped is judged
    unstable by `judge` as far as it got (or invalid, when there was no finite initial loss).
    It misleads under a rate that decays: what hops above its start may settle once it is small.

    Args:
        steps: (N,) optimizer steps, rising.
        losses: (N,) a loss at each of them.
        initial_loss: see `Trace`.
        horizon: steps that the trial is to run.
        warmup_steps: see `Trace`.
        blind_loss: see `Trace`; it only enters the scale.
        thresholds: the numbers.
    """
    if not math.isfinite(initial_loss):
        return "The loss was not finite before training."
    loss = np.asarray(losses, np.float64)
    finite = np.isfinite(loss)
    if not finite.all():
        return f"The loss was not finite at step {steps[int(finite.argmin())]}."
    scale = max(abs(initial_loss), abs(blind_loss or 0.0))
    t = thresholds
    if not len(loss) or not scale:
        return None
    # Most trials: both reasons need a last loss well above the start.
    if loss[-1] - initial_loss <= min(t.stop_runaway, t.stop_above) * scale:
        return None
    step, now = np.asarray(steps), int(steps[-1])
    excess = np.clip(loss, -LIMIT, LIMIT) - initial_loss
    recent = excess[-max(3, int(np.sum(step > now - t.stop_runaway_share * horizon))) :]
    if len(recent) >= 3 and recent.min() > t.stop_runaway * scale and recent[-1] >= recent[0]:
        return (
            f"Loss stayed above {rate(t.stop_runaway)} times its start and was still "
            f"growing at step {now} (start {rate(initial_loss)}, now {rate(loss[-1])})."
        )
    since = now - max(t.stop_above_share * horizon, t.stop_above_steps)
    if now + 1 < 0.5 * horizon or since < warmup_steps:
        return None
    recent = excess[-max(3, int(np.sum(step > since))) :]
    if len(recent) < 3 or recent.min() <= t.stop_above * scale:
        return None
    middle = len(recent) // 2
    earlier, later = np.median(recent[:middle]), np.median(recent[middle:])
    if not t.stop_falling * earlier <= later <= t.stop_growing * earlier:
        return None
    return (
        f"Loss stayed well above its start {rate(initial_loss)} from step "
        f"{step[-len(recent)]} to step {now} without falling (now {rate(loss[-1])})."
    )


def _first_line(seen: Evidence, trace: Trace, t: Thresholds) -> tuple[Verdict, str]:
    """The verdict and the reason of the first line of the truth table that holds, from line 3."""
    last = trace.num_steps - 1
    start, final, best = rate(seen.start), rate(seen.final), rate(seen.best)
    ended = f"ended at {final} (start {start}, blind {rate(float(trace.blind))})"
    is_hidden = seen.is_flat and seen.is_clipped and seen.update_ratio > t.hidden_update_ratio
    first, _, third = seen.rises
    if seen.is_rising and seen.ends_above and third > t.levelling * first:
        reason = f"Loss was still growing at step {last}, at {final} (start {start})."
        return Verdict.DIVERGED, reason
    if seen.end - seen.start > t.absurd * seen.scale and not is_hidden:
        return Verdict.DIVERGED, f"Loss {ended} after a peak at step {seen.peak_step}."
    if seen.start - seen.final > t.absurd * seen.scale > 0 and seen.is_plunging:
        reason = f"Loss was falling without bound, faster and faster, at step {last}; it {ended}."
        return Verdict.DIVERGED, reason
    if trace.warmup_steps > 1 and trace.num_steps < trace.warmup_steps + hold_steps(trace.horizon):
        after = max(trace.num_steps - trace.warmup_steps, 0)
        steps = f"{plural(after, 'step')} after a warmup of {trace.warmup_steps}"
        if not after:
            steps = f"inside a warmup of {trace.warmup_steps} steps"
        reason = f"Step {last} was the last, {steps}."
        return Verdict.PEAK_NOT_REACHED, reason
    if is_hidden:
        return Verdict.OSCILLATING, (
            f"Clipping engaged to step {last} while each step moved the weights by "
            f"{rate(seen.update_ratio)} of their norm; loss {ended}."
        )
    # Without the curve (NaN) the hops are taken for movement: noise is rarely that large.
    is_moving = not seen.update_ratio < t.hop_update_ratio
    if seen.is_flat and is_moving and 0 < t.hop * seen.fall < seen.hop:
        return Verdict.OSCILLATING, (
            f"Loss changed by {rate(seen.hop)} a step up to step {last}, with no trend; {ended}."
        )
    if seen.has_learned and seen.is_exponential:
        reason = f"Loss grew ever faster up to step {last}, from {best} to {final}."
        return Verdict.DEGRADED, reason
    loss = seen.end - seen.best
    if seen.has_learned and loss > max(t.lost * seen.gain, t.num_errors * seen.error):
        loss = seen.final - seen.best
        verdict = Verdict.COLLAPSED if loss > t.lost_all * seen.gain else Verdict.DEGRADED
        return verdict, f"Loss reached {best} by step {seen.best_step}, but {ended}."
    if seen.has_learned:
        return _learned(seen, trace, t, ended)
    if seen.was_above or seen.ends_above:
        peak = f"Loss peaked at {rate(seen.highest)} at step {seen.peak_step}"
        return Verdict.COLLAPSED, f"{peak} and {ended}."
    if seen.grad_share < t.dead:
        share = rate(seen.grad_share)
        return Verdict.COLLAPSED, f"Gradient at {share} of its first by step {last}; loss {ended}."
    moved = ""
    if math.isfinite(trace.displacement):
        moved = f"; weights moved by {rate(trace.displacement)} of their norm"
    return Verdict.TOO_SLOW, f"Undisturbed to step {last}, loss {ended}{moved}."


def _learned(seen: Evidence, trace: Trace, t: Thresholds, ended: str) -> tuple[Verdict, str]:
    if seen.spike_share > t.spike_limit and seen.num_bursts >= t.spike_bursts:
        count = round(seen.spike_share * trace.num_steps)
        reason = f"{count} of {trace.num_steps} steps are spikes; loss {ended}."
        return Verdict.SPIKY, reason
    noise = t.num_errors * seen.noise
    was_thrown_up = seen.peak - seen.start > max(t.catapult * seen.fall, noise)
    if was_thrown_up or seen.highest - seen.start > max(t.catapult_alone * seen.fall, noise):
        peak = f"Loss peaked at {rate(seen.highest)} at step {seen.peak_step}"
        return Verdict.RECOVERED, f"{peak}, then fell and {ended}."
    return Verdict.CONVERGED, f"Loss {ended}, best {rate(seen.best)} by step {seen.best_step}."


def _judge_scale(trace: Trace, skipped: Array, step: int, clip_share: float) -> Judgement:
    """A run whose loss looks normal while its scaler leaves out step after step."""
    first = int(np.flatnonzero(skipped[: step + 1])[0])
    count = int(skipped[: step + 1].sum())
    return Judgement(
        Verdict.DIVERGED,
        f"The loss scale collapsed: {count} of the steps {first} to {step} overflowed, which took "
        f"it down by 2^{count}; the loss still read {rate(float(trace.loss[step]))}.",
        bad_step=step,
        peak_loss=float(np.max(trace.loss)),
        clip_share=clip_share,
        overflows=int(skipped.sum()),
    )


def _cause(trace: Trace, bad_step: int, t: Thresholds) -> str:
    """Which pass failed as a run ended at once, and whether clipping could have prevented it.

    A loss is that of the forward pass with the weights that the step before has made. Where these
    lie close to weights whose loss was finite, it is the pass that overflows; after a long step of
    a gradient that was not clipped, it is the step. It misleads for Adam and its kin, whose steps
    at a high rate are long without a large gradient.

    Returns:
        what follows "not finite from step N"; nothing where the step's length is not known.
    """
    moved = float(trace.update_ratio[bad_step - 1])
    is_long, is_clipped = moved > t.long_step, trace.clip_coef[bad_step - 1] < 1
    step = f"a step of {rate(moved)} times the weights"
    if math.isnan(moved):
        return ""
    if is_long and not is_clipped:
        norm = rate(float(trace.grad_norm[bad_step - 1]))
        return f": the gradient exploded (norm {norm}, {step}), which clip_norm may prevent"
    if math.isfinite(trace.loss[bad_step]):
        return f": the backward pass overflowed after {step}, so no clip norm can help"
    if is_long:
        return f": the forward pass failed after {step} though clipped, so clipping cannot help"
    return f": the forward pass failed after {step}, so clipping cannot help"


def _judge_not_finite(
    trace: Trace, loss: Array, finite: Array, clip_share: float, t: Thresholds
) -> Judgement:
    is_started = math.isfinite(trace.initial_loss)
    bad_step = int(finite.argmin()) if is_started else 0
    known = loss[np.isfinite(loss)]
    peak = float(known.max()) if len(known) else math.nan
    if bad_step == 0:
        what = "Loss" if not math.isfinite(trace.initial_loss + loss[0]) else "Gradient"
        reason = f"{what} not finite at step 0, before any update."
        verdict, moved = Verdict.INVALID, math.nan
    else:
        before, start, cause = loss[:bad_step], trace.initial_loss, ""
        what = "Gradient" if math.isfinite(loss[bad_step]) else "Loss"
        times = min(float(before.max()) / start, LIMIT) if start > 0 else 0.0
        if times >= 10:
            level = 10.0 ** math.floor(math.log10(times))
            step = int(np.argmax(before >= level * start))
            lead = f"Loss passed {rate(level)} times its start at step {step}"
        else:
            lead = f"Loss was {rate(before[-1])} at step {bad_step - 1}"
            cause = _cause(trace, bad_step, t)
        tail = "" if what == "Loss" else "gradient "
        reason = f"{lead}, {tail}not finite from step {bad_step}{cause}."
        verdict, moved = Verdict.DIVERGED, float(trace.update_ratio[bad_step - 1])
    return Judgement(
        verdict,
        reason,
        bad_step=bad_step,
        peak_loss=peak,
        clip_share=clip_share,
        last_update_ratio=moved,
    )
