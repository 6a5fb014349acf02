"""Early warnings: what goes wrong in a run, where it can be told before its loss moves.

Mostly it cannot. `benchmarks/early_warning.py` measures what these rules say of healthy and of
failing runs, and "measured" below is what it found in the runs that they were chosen by.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from stabsweep.evidence import DEFAULTS
from stabsweep.numerals import plural, rate, share

WINDOW = 64
"""Values that "before" means. Ours: long enough for a median, short enough to follow a schedule."""

LEAST = 16
"""Values without which nothing is said of a trend. Ours: a robust spread needs a dozen."""

SIGMAS = DEFAULTS.spike_sigmas
"""Robust standard deviations above the median, as a loss spike has (OLMo 2, arXiv 2501.00656)."""

DOUBLED = 1.9
"""Factor that counts as doubled. Ours: an update that doubles does not do so to the last digit.
Measured: with the sigmas three false alarms in 108,600 healthy steps, and fourteen in 109,200 that
were held out; with a look at every tenth step one in each."""

LONG = 1.0
"""Update over weights, in one step, from which nothing is left of the weights. Ours; measured:
healthy runs had at most 0.51, in their first step with Adam, and 0.083 after ten steps."""

GROWN, TWICE = 8.0, 2
"""Norm over the median of those before which is growth, and how many in a row. Ours: three
doublings; norms of healthy runs rise two- to fourfold while they learn. Measured: no false alarm in
108,600 healthy steps, 23 with one norm of twice the median; medians of sixteen steps gave eleven,
where the gradient of a fitted model is close to zero, and hardly ever spoke before a failure."""

LOGIT = 50.0
"""Attention logit from which softmax is one-hot whatever the others are: `cases` of fine-tuning,
and the loss spikes of ViT-22B (arXiv 2302.05442) came with logits of that size."""

LOGIT_DOUBLING = 10.0
"""Logit below which doubling is harmless. Ours: at 10 one key in 20,000 others still counts."""

CLIPPED, CLIP_WINDOW = 0.5, 200
"""Share of the last steps above which clipping sets the step, not the rate (the map says the same
of a cell), and how many steps those are. Ours."""

STUCK, DECAYED = 0.999, 0.5
"""Share of a layer's entries that a step leaves as they are, in half precision, and the part of its
peak below which a rate that has decayed is to move them less. Ours: bfloat16 rounds away an update
below 1/256 of its weight. Measured: above 0.9 in 20 of 24 healthy runs, once they had learned; with
these in none of them, and in as many of those that failed as with 0.95."""

PATIENCE = 3
"""Close looks in a row that must agree on a layer. Ours: one look may meet a batch without it."""


@dataclass(frozen=True)
class Warned:
    """An early warning.

    Attributes:
        kind: `update_ratio`, `growth`, `clip`, `logits`, `dead` or `stuck`.
        message: what is seen, where, and what it means.
        layer: the layer, where it is one's.
    """

    kind: str
    message: str
    layer: str = ""


@dataclass(frozen=True)
class Look:
    """What is known of one step.

    Attributes:
        grad_norm, clip_coef, lr: of the step.
        update_ratio: update over weights; NaN where it was not measured.
        layers: layer -> (gradient norm, weight norm, update norm); empty without a close look.
        logits: layer -> largest attention logit.
        unmoved: layer -> share of its entries that the step left as they are; half precision only.
    """

    grad_norm: float
    clip_coef: float = 1.0
    lr: float = 1.0
    update_ratio: float = math.nan
    layers: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    logits: Mapping[str, float] = field(default_factory=dict)
    unmoved: Mapping[str, float] = field(default_factory=dict)


class Trends:
    """Reads a run step by step; says each thing once, and again only after it was over.

    An update-to-weight ratio is read relative to the learning rate, so that a warmup is no growth.
    But for a step as long as the weights, the rules compare with the run's own past: they say
    nothing of the first steps, and get used to what stays. They mislead where weights start at
    zero: their second step is as long as they are.
    """

    def __init__(self) -> None:
        self._ratios: deque[float] = deque(maxlen=WINDOW)
        self._norms: deque[float] = deque(maxlen=WINDOW)
        self._clips: deque[bool] = deque(maxlen=CLIP_WINDOW)
        self._num_clipped, self._peak_lr = 0, 0.0
        self._logits: dict[str, deque[float]] = {}
        self._said: dict[str, float] = {}
        self._counts: dict[tuple[str, str], int] = {}
        self._active: set[tuple[str, str]] = set()

    def read(self, look: Look) -> list[Warned]:
        """What a step adds that was not so before."""
        self._peak_lr = max(self._peak_lr, look.lr)
        found = [self._ratio(look), self._growth(look), self._clip(look)]
        found += [self._logit(name, value) for name, value in look.logits.items()]
        found += [self._dead(name, look) for name in look.layers]
        found += [self._stuck(name, look) for name in look.unmoved]
        now = {(w.kind, w.layer): w for w in found if w is not None}
        news = [warned for key, warned in now.items() if key not in self._active]
        # What was not looked at this time is as it was.
        seen = {("update_ratio", ""), ("growth", ""), ("clip", "")}
        seen |= {("logits", name) for name in look.logits}
        seen |= {("dead", name) for name in look.layers} | {("stuck", n) for n in look.unmoved}
        self._active = (self._active - seen) | set(now)
        return news

    def _ratio(self, look: Look) -> Warned | None:
        if not math.isfinite(look.update_ratio) or not look.lr > 0:
            return self._known("update_ratio")
        ratio, past = look.update_ratio / look.lr, list(self._ratios)
        self._ratios.append(ratio)
        moved = f"a step moved the weights by {rate(look.update_ratio)} of their norm"
        if look.update_ratio > LONG:
            why = "nothing is left of what they were; lower the learning rate, or warm up"
            return Warned("update_ratio", f"{moved}: {why}")
        if len(past) < LEAST or not _stands_out(ratio, past, DOUBLED):
            return None
        times = rate(ratio / float(np.median(past)))
        why = "updates grow before norms and losses do"
        return Warned(
            "update_ratio", f"{moved}, {times} times the usual at this learning rate: {why}"
        )

    def _growth(self, look: Look) -> Warned | None:
        norm, past = look.grad_norm, self._norms
        if not math.isfinite(norm):
            return self._known("growth")
        # Most steps end at the first comparison: a median takes a hundred times as long.
        grown = len(past) >= LEAST and norm > GROWN * min(past)
        grown = grown and _stands_out(norm, list(past), GROWN)
        before = float(np.median(past)) if grown else math.nan
        past.append(norm)
        if not self._lasts("growth", "", grown, TWICE):
            return None
        return Warned(
            "growth",
            f"the gradient norm has grown from {rate(before)}, the median of the "
            f"{plural(len(past) - 1, 'step')} before, to {rate(norm)}: lower the learning rate",
        )

    def _clip(self, look: Look) -> Warned | None:
        if len(self._clips) == CLIP_WINDOW:
            self._num_clipped -= self._clips[0]
        self._clips.append(look.clip_coef < 1)
        self._num_clipped += self._clips[-1]
        engaged = self._num_clipped / len(self._clips)
        if len(self._clips) < CLIP_WINDOW // 2 or not engaged > CLIPPED:
            return None
        return Warned(
            "clip",
            f"clipping engaged on {share(engaged)} of the last {len(self._clips)} steps: it sets "
            "the step now, and the learning rate only scales it",
        )

    def _logit(self, layer: str, value: float) -> Warned | None:
        past = self._logits.setdefault(layer, deque(maxlen=WINDOW))
        median = float(np.median(past)) if len(past) >= PATIENCE else math.nan
        past.append(value)
        # What was said holds until it is twice as much: at its limit a noisy one comes and goes.
        said = self._said.get(layer, 0.0)
        grew = value > LOGIT_DOUBLING and value > 2 * max(median, said)
        if not grew and not (value > LOGIT > said):
            return None
        self._said[layer] = value
        grown = f", {rate(value / median)} times what it was" if grew else ""
        return Warned(
            "logits",
            f"attention logits of {layer or 'the model'} reach {rate(value)}{grown}: softmax "
            "saturates; normalise queries and keys, or lower the learning rate",
            layer,
        )

    def _dead(self, layer: str, look: Look) -> Warned | None:
        norm = look.layers[layer][0]
        largest = max(values[0] for values in look.layers.values())
        if not self._lasts("dead", layer, norm == 0 and largest > 0):
            return None
        return Warned(
            "dead",
            f"{layer} gets no gradient at all: its units are dead, or nothing depends on it",
            layer,
        )

    def _stuck(self, layer: str, look: Look) -> Warned | None:
        unmoved, is_on = look.unmoved[layer], look.lr >= DECAYED * self._peak_lr
        if not self._lasts("stuck", layer, unmoved > STUCK and is_on):
            return None
        return Warned(
            "stuck",
            f"steps leave {share(unmoved)} of the weights of {layer} as they are: the updates are "
            "rounded away; keep float32 master weights (autocast), or raise the learning rate",
            layer,
        )

    def _known(self, kind: str) -> Warned | None:
        """What was so before: it is neither news nor over."""
        return Warned(kind, "") if (kind, "") in self._active else None

    def _lasts(self, kind: str, layer: str, holds: bool, times: int = PATIENCE) -> bool:
        key = (kind, layer)
        self._counts[key] = self._counts.get(key, 0) + 1 if holds else 0
        return self._counts[key] >= times


def _stands_out(value: float, past: Sequence[float], factor: float) -> bool:
    """Whether a value is so many times the median, and far beyond the spread of those before.

    The spread is that of the logarithms: step by step such values differ by factors. Nothing is
    so many times a median of zero.
    """
    if not np.median(past) > 0:
        return False
    logs = np.log(np.maximum(past, _TINY))
    median = float(np.median(logs))
    sigma = 1.4826 * float(np.median(np.abs(logs - median)))
    return math.log(max(value, _TINY)) > median + max(math.log(factor), SIGMAS * sigma)


_TINY = 1e-300
