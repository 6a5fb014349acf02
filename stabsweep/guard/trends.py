"""Early warnings: what goes wrong in a run before its loss moves."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from stabsweep.evidence import DEFAULTS
from stabsweep.numerals import plural, rate, share
from stabsweep.records import Array

WINDOW = 64
"""Values that "before" means. Ours: long enough for a median, short enough to follow a schedule."""

LEAST = 16
"""Values without which nothing is said of a trend. Ours: a robust spread needs a dozen."""

SIGMAS = DEFAULTS.spike_sigmas
"""Robust standard deviations above the median, as a loss spike has (OLMo 2, arXiv 2501.00656)."""

DOUBLED = 1.9
"""Factor that counts as doubled. Ours: an update that doubles does not do so to the last digit."""

GROWN = 8.0
"""Median of the last norms over that of those before which is growth. Ours: three doublings; norms
of healthy runs rise two- to fourfold while they learn."""

LOGIT = 50.0
"""Attention logit from which softmax is one-hot whatever the others are: `cases` of fine-tuning,
and the loss spikes of ViT-22B (arXiv 2302.05442) came with logits of that size."""

LOGIT_DOUBLING = 10.0
"""Logit below which doubling is harmless. Ours: at 10 one key in 20,000 others still counts."""

CLIPPED, CLIP_WINDOW = 0.5, 200
"""Share of the last steps above which clipping sets the step, not the rate (the map says the same
of a cell), and how many steps those are. Ours."""

STUCK = 0.9
"""Share of a layer's entries that a step leaves as they are, in half precision. Ours: bfloat16
rounds away an update below 1/256 of its weight; a healthy layer has most entries moving."""

EVERY = LEAST
"""Steps between two looks at growth, whose medians change slowly."""

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
    All rules compare with the run's own past: they say nothing of the first steps, and get used to
    what stays.
    """

    def __init__(self) -> None:
        self._ratios: deque[float] = deque(maxlen=WINDOW)
        self._norms: deque[float] = deque(maxlen=WINDOW + LEAST)
        self._clips: deque[bool] = deque(maxlen=CLIP_WINDOW)
        self._num_clipped = self._num_read = 0
        self._logits: dict[str, deque[float]] = {}
        self._counts: dict[tuple[str, str], int] = {}
        self._active: set[tuple[str, str]] = set()

    def read(self, look: Look) -> list[Warned]:
        """What a step adds that was not so before."""
        self._num_read += 1
        found = [self._ratio(look), self._growth(look), self._clip(look)]
        found += [self._logit(name, value) for name, value in look.logits.items()]
        found += [self._dead(name, look) for name in look.layers]
        found += [self._stuck(name, value) for name, value in look.unmoved.items()]
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
            return None
        ratio, past = look.update_ratio / look.lr, np.array(self._ratios)
        self._ratios.append(ratio)
        if len(past) < LEAST or not ratio > _limit(past):
            return None
        times = rate(ratio / float(np.median(past)))
        return Warned(
            "update_ratio",
            f"a step moved the weights by {rate(look.update_ratio)} of their norm, {times} times "
            "the usual at this learning rate: updates grow before norms and losses do",
        )

    def _growth(self, look: Look) -> Warned | None:
        if not math.isfinite(look.grad_norm):
            return None
        self._norms.append(look.grad_norm)
        if len(self._norms) < 2 * LEAST or self._num_read % EVERY:
            return self._known("growth")
        values = np.array(self._norms)
        before, now = np.median(values[:-LEAST]), np.median(values[-LEAST:])
        if not now > GROWN * before > 0:
            return None
        return Warned(
            "growth",
            f"the gradient norm has grown from {rate(float(before))} to {rate(float(now))} within "
            f"{plural(len(values), 'step')}: lower the learning rate before the loss follows",
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
        grew = value > LOGIT_DOUBLING and value > 2 * median
        if not grew and not value > LOGIT:
            return None
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

    def _stuck(self, layer: str, unmoved: float) -> Warned | None:
        if not self._lasts("stuck", layer, unmoved > STUCK):
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

    def _lasts(self, kind: str, layer: str, holds: bool) -> bool:
        key = (kind, layer)
        self._counts[key] = self._counts.get(key, 0) + 1 if holds else 0
        return self._counts[key] >= PATIENCE


def _limit(past: Array) -> float:
    """What a value must exceed to stand out: twice the median, and far beyond its spread.

    The spread is that of the logarithms: step by step such ratios differ by factors.
    """
    logs = np.log(np.maximum(past, 1e-300))
    median = float(np.median(logs))
    sigma = 1.4826 * float(np.median(np.abs(logs - median)))
    return math.exp(median + max(math.log(DOUBLED), SIGMAS * sigma))
