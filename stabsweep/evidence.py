"""What a trace shows: the thresholds, and everything a verdict looks at, measured once.

Levels are compared by differences and growth by its own rate, never by bare ratios of losses,
which may be negative or close to zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from stabsweep.records import Array, Trace

LIMIT = 1e300
"""Losses beyond this are cut to it, so that sums and differences of finite losses stay finite."""

LEAST_HOLD = 16
"""Steps after a warmup that can be read by themselves: eight parts of two, as growth needs."""


@dataclass(frozen=True)
class Thresholds:
    """Every number that a verdict depends on; "ours" means chosen by us, for the reason given.

    *start* is the initial loss, *base* the lower of start and blind loss, *best* the lowest and
    *final* the last smoothed loss. *gain* is base - best, *fall* is start - best, and *scale* the
    larger magnitude of start and blind loss: the one quantity that a constant added to the loss
    changes.

    Attributes:
        tail_share: part of the steps that makes one smoothed loss. Ours: a tenth, as `Record` says.
        tail_steps: least number of steps in it. Ours: the mean of fewer is one batch's luck.
        num_errors: standard errors that a difference must exceed to be one. Ours: four, because
            the best of some dozens of windows lies two or three below their mean by luck alone.
        learned: part of |base| by which best must lie below base. Ours: 5 %; ln 10 -> 2.19 is the
            least that one would call learning.
        lost: part of the gain whose loss is `degraded`. Ours: less is lost and found again.
        lost_all: part of the gain whose loss is `collapsed`. Ours: nine tenths is back at base.
        above: part of the scale by which the final loss lies above start beyond doubt. Ours: 10 %,
            several times the error of a median over a few batches.
        disturbed: part of the scale by which the peak must top the start to be a disturbance. Ours:
            half; the noise of small batches is larger at the start than later.
        catapult: part of the fall by which the peak must top the start to be `recovered`. Ours:
            half; catapults at 2 < eta lambda < 4 peak at many times the start (arXiv 2003.02218).
        catapult_alone: the same for a peak of one or two steps. Ours: five; no batch of a healthy
            run is that much worse than the first ones, and narrow models are thrown up so briefly.
        growth: part of the fall that a rise below the start must reach to be growth. Ours: 5 %.
            A clean exponential, eight parts of the last half each steeper than the one before,
            needs none: of 2e7 series of pure noise none did that.
        convexity: last increment over the first of such a rise; an exponential's exceeds 1 from
            whatever floor it grows, a return to a level stays below. Ours: 1.1 is found from
            eta lambda = 2.001 on in 200 steps.
        levelling: last increment over the first of a rise above start that is still going on.
            Ours: half; below it the loss is on its way to a level.
        absurd: final loss above start, in scales, that is running away even if it is flat; as far
            below start, one that falls faster and faster. Ours: 100; cross-entropy at a hundred
            times ln C is no longer a classifier.
        hop: median step-to-step change, in falls, of an oscillation. Ours: half of all that was
            ever learned comes and goes at every step.
        hop_update_ratio: least update over weights beside it. Ours: 2e-2, ten times a healthy
            1e-3; small batches make losses hop as much without moving the weights.
        hidden_update_ratio: update over weights that is an oscillation hidden by clipping when
            clipping never lets go. Ours: a tenth of the weights at every step; healthy runs under
            permanent clipping stay at or below 2.2e-2 (digits, SGD and AdamW).
        hidden_clip_share: part of the last half's steps in which clipping "never lets go". Ours.
        flat: change over the last half, in falls, that is no trend. Ours: a tenth.
        spike_sigmas: robust sigmas above the rolling median that make a spike (OLMo 2, arXiv
            2501.00656, and its later code: 6 over 128 steps).
        spike_window: steps of that rolling median for long runs; an eighth of a short one.
        spike_size: least height of a spike, in gains. Ours: half; a batch with one hard
            example costs that much in a run that is well.
        spike_limit: part of the steps that may be spikes. Ours: one in a hundred.
        spike_bursts: least number of bursts in which they come. Ours: five; one is a catapult, and
            noise with a long tail reaches two or three in 200 steps.
        long_step: update over weights of one step that is long. Ours: half of the weights; what SGD
            exploded with was 0.77 and more, and forward passes overflowed after up to 0.2 (Adam on
            recurrent nets).
        dead: gradient norm over its first value that is dead. Ours: 1e-3; batch noise keeps the
            gradient of a living model above that at any plateau.
        scale_window, scale_overflows: steps, and how many of them may overflow under a gradient
            scaler. Ours: 16 halvings take the usual first scale 65536 to 1; a run that needs more
            within 20 steps has gradients beyond the format itself.
        stop_runaway: loss above start, in scales, at which a run may be stopped. Ours: 1e6; a
            catapult that converges peaks at 2e4 for width 4096 (uv model), and grows with width.
        stop_runaway_share: part of the horizon for which it must have stayed there. Ours: a
            catapult stays at its peak for a handful of steps.
        stop_above: the same for a run that is past half of its horizon. Ours: twice the start.
        stop_above_share: part of the horizon for which it must have stayed there. Ours.
        stop_above_steps: least number of steps in it. Ours: catapults of wide models last 25.
        stop_falling: the later half of that time over the earlier, above start, that is falling.
            Ours: a run that lost a tenth may come down yet.
        stop_growing: the same ratio of a run that multiplies. Ours: half as much again; it may
            be a slow catapult (eta lambda just above 2) on its way to the turn.
    """

    tail_share: float = 0.1
    tail_steps: int = 5
    num_errors: float = 4.0
    learned: float = 0.05
    lost: float = 0.3
    lost_all: float = 0.9
    above: float = 0.1
    disturbed: float = 0.5
    catapult: float = 0.5
    catapult_alone: float = 5.0
    growth: float = 0.05
    convexity: float = 1.1
    levelling: float = 0.5
    absurd: float = 100.0
    hop: float = 0.5
    hop_update_ratio: float = 0.02
    hidden_update_ratio: float = 0.1
    hidden_clip_share: float = 0.9
    flat: float = 0.1
    spike_sigmas: float = 6.0
    spike_window: int = 128
    spike_size: float = 0.5
    spike_limit: float = 0.01
    spike_bursts: int = 5
    long_step: float = 0.5
    dead: float = 1e-3
    scale_window: int = 20
    scale_overflows: int = 16
    stop_runaway: float = 1e6
    stop_runaway_share: float = 0.05
    stop_above: float = 1.0
    stop_above_share: float = 0.25
    stop_above_steps: int = 25
    stop_falling: float = 0.9
    stop_growing: float = 1.5


DEFAULTS = Thresholds()


def hold_steps(horizon: int) -> int:
    """Steps at the peak rate that a horizon must leave after a warmup, for a verdict on that rate.

    A tenth of the horizon, at least `LEAST_HOLD`. With fewer, the edge of a quadratic is found at
    3.1 to 3.6 instead of 2, since the warmup has brought it so low that it takes long to come back.
    """
    return max(LEAST_HOLD, horizon // 10)


class Evidence:
    """What the lines of the truth table of `judge` look at, measured once.

    It misleads for batches of one or two samples, whose losses scatter as much as they are high:
    noise is measured as if it were normal, and the start as if its median were its mean.

    Args:
        trace: the curves and the levels to compare with.
        loss: (T,) its losses, all finite and at most `LIMIT`.
        t: the thresholds.

    Attributes:
        start, base, scale, final, best, gain, fall: as in `Thresholds`.
        end: the final loss without spikes that are over.
        hop: median change from step to step in the last half.
        noise, error: standard deviation of a loss and of a smoothed loss.
        rises, rise: increments between the quarters of the last half, and their sum, without
            spikes that are over.
        is_rising, is_flat, is_exponential, is_plunging: how they run, beyond noise; plunging is a
            fall that grows from quarter to quarter.
        highest, peak, peak_step: highest loss, highest median of five neighbours, and where.
        ends_above, was_above: whether final and peak lie above start beyond noise and threshold.
        update_ratio, is_clipped: median step over weights, and whether clipping never let go.
        grad_share: last gradient norms over the first.
        has_learned: whether best lies below base beyond noise and threshold.
        spike_share, num_bursts: share of steps that are spikes; 0 unless the run learned.
    """

    def __init__(self, trace: Trace, loss: Array, t: Thresholds) -> None:
        num_steps = len(loss)
        self.start = start = float(trace.initial_loss)
        self.base = min(start, float(trace.blind))
        self.scale = max(abs(start), abs(float(trace.blind)))
        width = min(num_steps, max(t.tail_steps, int(num_steps * t.tail_share)))
        # Every eighth of a window is fine enough for a minimum and keeps long traces cheap.
        lasts = np.arange(num_steps - 1, width - 2, -max(1, width // 8))
        means = np.add.reduce(loss[lasts[:, None] - np.arange(width)], axis=1) / width
        lowest = int(means.argmin())
        self.final, self.best = float(means[0]), float(means[lowest])
        self.best_step = int(lasts[lowest])
        self.gain, self.fall = self.base - self.best, max(start - self.best, 0.0)
        calm = _calm(loss, max(width, num_steps // 4), t)
        self.end = float(calm[-width:].mean())

        # Under a warmup "the last half" is what is left of it after the warmup, if that suffices.
        middle = num_steps // 2
        if middle < trace.warmup_steps <= num_steps - LEAST_HOLD:
            middle = trace.warmup_steps
        half = loss[middle:]
        self.hop = _median(np.abs(half[1:] - half[:-1]))
        late = _noise(half)
        # The first loss was taken before any update: it differs from the start by noise alone.
        self.noise = max(late, abs(float(loss[0]) - start))
        self.error = self.noise / math.sqrt(width)

        error = t.num_errors * late * math.sqrt(8 / max(len(half), 8))
        # All losses here: without its spikes in one part only, heavy noise would have a trend.
        self.is_flat = abs(float(_rises(_parts(half)).sum())) <= max(t.flat * self.fall, error)
        parts = _parts(calm[middle:])
        self.rises = rises = _rises(parts)
        self.rise = float(rises.sum())
        self.is_rising = bool(rises.min() > 0) and self.rise > error
        self.is_plunging = bool(rises.max() < 0 and -self.rise > error) and bool(
            rises[2] < t.convexity * rises[1] and rises[1] < t.convexity * rises[0]
        )
        steps = parts[1:] - parts[:-1]
        self.is_exponential = bool(
            steps[0] > 0 and (steps[1:] > steps[:-1]).all() and steps[-1] > t.convexity * steps[0]
        ) or (
            self.is_rising
            and self.rise > t.growth * self.fall
            and bool(rises[2] > t.convexity * rises[0])
        )

        self.peak_step = int(loss.argmax())
        self.highest, self.peak = float(loss[self.peak_step]), float(_sustained(loss).max())
        # Beyond the scale itself the loss does not scatter over batches, it moves.
        noise = min(max(self.noise, _noise(loss[:middle])), self.scale)
        self.ends_above = self.end - start > max(t.above * self.scale, 2 * noise)
        self.was_above = self.peak - start > max(t.disturbed * self.scale, t.num_errors * noise)

        ratios = np.asarray(trace.update_ratio, np.float64)[middle:]
        self.update_ratio = _median(ratios[~np.isnan(ratios)], math.nan)
        clips = np.asarray(trace.clip_coef)[middle:] < 1
        self.is_clipped = np.count_nonzero(clips) >= max(t.hidden_clip_share * len(clips), 1)
        grads = np.asarray(trace.grad_norm, np.float64)
        grads = grads[np.isfinite(grads)]  # What a scaler left out says nothing here.
        self.grad_share = (
            _median(grads[-width:]) / float(grads[0]) if len(grads) and grads[0] > 0 else math.nan
        )
        has_gain = self.gain > max(t.learned * abs(self.base), t.num_errors * self.error)
        self.has_learned = has_gain
        self.spike_share, self.num_bursts = 0.0, 0
        if has_gain:
            self.spike_share, self.num_bursts = _spikes(loss, t.spike_size * self.gain, t)


def _spikes(loss: Array, least_height: float, t: Thresholds) -> tuple[float, int]:
    """Share of steps far above the rolling median of the steps before them, and their bursts.

    Spikes closer than a quarter of the window are one burst. The median is renewed every quarter
    of its window. A first pass finds the outliers, a second one looks again with them taken out
    of the windows.
    """
    num_steps = len(loss)
    width = min(t.spike_window, max(16, num_steps // 8))
    stride = width // 4
    firsts = np.arange(0, num_steps - width, stride)
    if not len(firsts):
        return 0.0, 0
    later, clean = loss[width:], loss
    columns = firsts[:, None] + np.arange(width)
    for _ in range(2):
        windows = clean[columns]
        center = _medians(windows)
        sigma = 1.4826 * _medians(np.abs(windows - center[:, None]))
        height = np.maximum(t.spike_sigmas * sigma, least_height)
        center = center.repeat(stride)[: len(later)]
        is_spike = later - center > height.repeat(stride)[: len(later)]
        if not is_spike.any():
            return 0.0, 0
        clean = loss.copy()
        clean[width:][is_spike] = center[is_spike]
    steps = np.flatnonzero(is_spike)
    num_bursts = int(np.count_nonzero(steps[1:] - steps[:-1] > stride)) + 1
    return len(steps) / num_steps, num_bursts if len(steps) else 0


def _calm(loss: Array, width: int, t: Thresholds) -> Array:
    """The losses with the spikes of the last `width` steps at their median, if they are over.

    One hard batch would else decide of a mean over few steps. Where the last `tail_steps` are high
    themselves, nothing says that this is a spike, and nothing is taken out. It misleads where noise
    has a long tail: what is left is its lower part.
    """
    tail = loss[-width:]
    center = _median(tail)
    limit = center + t.spike_sigmas * 1.4826 * _median(np.abs(tail - center))
    if _median(tail[-t.tail_steps :]) > limit:
        return loss
    return np.concatenate([loss[:-width], np.where(tail > limit, center, tail)])


def _parts(half: Array) -> Array:
    """The means of eight equal parts; of four, each twice, or of none when there are too few."""
    if len(half) < 4:
        return np.zeros(8)
    num_parts = 8 if len(half) >= 16 else 4
    edges = np.arange(num_parts + 1) * len(half) // num_parts
    means = np.add.reduceat(half, edges[:-1]) / (edges[1:] - edges[:-1])
    return means if num_parts == 8 else means.repeat(2)


def _rises(parts: Array) -> Array:
    """The increments between four quarters, from the means of their eight halves."""
    quarters = parts[1::2] + parts[::2]
    return (quarters[1:] - quarters[:-1]) / 2


def _noise(values: Array) -> float:
    """The spread from step to step with the trend taken out, were it normal."""
    if len(values) < 3:
        return 0.0
    # The median of |x - 2 y + z| is 1.652 sigma for independent normal values.
    return _median(np.abs(values[2:] - 2 * values[1:-1] + values[:-2])) / 1.652


def _sustained(loss: Array) -> Array:
    """The median of every five neighbours: one or two bad batches do not show in it."""
    if len(loss) < 5:
        return loss
    return np.sort(loss[np.arange(len(loss) - 4)[:, None] + np.arange(5)], axis=1)[:, 2]


def _medians(rows: Array) -> Array:
    """The median of each row, several times faster than `np.median` for a few hundred values."""
    ordered = np.sort(rows, axis=-1)
    num = rows.shape[-1]
    return (ordered[..., (num - 1) // 2] + ordered[..., num // 2]) / 2


def _median(values: Array, empty: float = 0.0) -> float:
    return float(_medians(values)) if len(values) else empty
