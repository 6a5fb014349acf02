"""ZClip: a limit on norms that lie far above their running mean."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from stabsweep.clipper._base import Clipper, State, Twin, exact, scale_, share_within

NUM_WARMUP = 25
"""Norms whose mean and variance the running ones start from; none of these is clipped. As in the
authors' code."""

LEAST_DEVIATION = 1e-6
"""Part of the mean that is added to the deviation before something is divided by it. The authors'
code adds 1e-6 itself, which is not little beside little gradients; ours."""


class ZClip(Clipper):
    """A norm of more than `clip_z` deviations above the running mean is a spike, and held down.

    With g the norm, mu and sigma its running mean and deviation, and z = (g - mu) / sigma, a norm
    with z > clip_z becomes g* = mu + clip_z^2 / z * sigma: the farther out, the nearer to the
    mean. Then mu = alpha mu + (1 - alpha) g* and sigma^2 = alpha sigma^2 + (1 - alpha) (g* - mu)^2,
    alpha being `clip_alpha`; a spike enters as what it was held down to. Both start from the mean
    and the variance of the first 25 norms.

    For the first 25 steps there is no limit; the authors' code has `clip_norm` = 1 beside it by
    default, here each clipper is by itself. A norm that grows slowly takes the mean with it. It
    misleads where norms rise faster, to stay: mean and deviation see only what spikes were held
    down to, so that all that follows is a spike as well. An MLP on digits had every step after the
    25th clipped so (SGD at 0.06), down to a fifth.

    References:
        Kumar et al. 2025, arXiv:2504.02507: its reciprocal clipping, with its numbers.
    """

    name = "zclip"
    defaults = {"clip_z": 2.5, "clip_alpha": 0.97}

    def new_state(self, theta_KP: Tensor) -> State:
        """See `Clipper.new_state`."""
        zeros_K1 = theta_KP.new_zeros(len(theta_KP), 1, dtype=torch.float64)
        return {key: zeros_K1.clone() for key in ("count", "mean", "variance")}

    def clip(
        self,
        grad_KP: Tensor,
        theta_KP: Tensor,
        norm_K1: Tensor,
        state: State,
        hyper: Mapping[str, Tensor],
        step_K1: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """See `Clipper.clip`."""
        count_K1, mean_K1, variance_K1 = state["count"], state["mean"], state["variance"]
        g_K1, z_K1, is_finite_K1 = norm_K1.double(), hyper["clip_z"], norm_K1.isfinite()
        is_warm_K1 = count_K1 >= NUM_WARMUP
        deviation_K1 = variance_K1.sqrt() + LEAST_DEVIATION * mean_K1
        above_K1 = g_K1 - mean_K1
        spike_K1 = mean_K1 + (z_K1 * deviation_K1).square() / above_K1
        is_spike_K1 = is_warm_K1 & (above_K1 > z_K1 * deviation_K1)
        # NaN is no spike, but stays NaN.
        held_K1 = torch.where(is_spike_K1, spike_K1, g_K1)
        coef_K1 = share_within(g_K1, held_K1).to(norm_K1)
        # The first norms count alike (Welford's update), all later ones by alpha.
        count_K1 += is_finite_K1
        kept_K1 = torch.where(is_warm_K1, hyper["clip_alpha"], 1 - 1 / count_K1.clamp(min=1))
        gap_K1 = held_K1 - mean_K1
        new_mean_K1 = mean_K1 + (1 - kept_K1) * gap_K1
        last_K1 = held_K1 - new_mean_K1
        squared_K1 = torch.where(is_warm_K1, last_K1 * last_K1, gap_K1 * last_K1)
        new_variance_K1 = kept_K1 * variance_K1 + (1 - kept_K1) * squared_K1
        mean_K1.copy_(torch.where(is_finite_K1, new_mean_K1, mean_K1))
        variance_K1.copy_(torch.where(is_finite_K1, new_variance_K1, variance_K1))
        return grad_KP.mul_(coef_K1), coef_K1

    def twin(self, hyper: Mapping[str, float]) -> Twin:
        """The paper's lines; the first norms are kept until there are enough."""
        return _PlainZClip(hyper["clip_z"], hyper["clip_alpha"])


class _PlainZClip(Twin):
    keys = ("first", "count", "mean", "variance")

    def __init__(self, clip_z: float, clip_alpha: float) -> None:
        super().__init__()
        self._z, self._alpha = clip_z, clip_alpha

    @torch.no_grad()
    def clip_(self, named: Mapping[str, nn.Parameter], total: Tensor) -> Tensor:
        g, z, alpha = exact(total), self._z, self._alpha
        if not self.memory:
            zeros = {key: g.new_zeros(()) for key in self.keys[1:]}
            self.memory = {"first": g.new_zeros(NUM_WARMUP), **zeros}
        first, count, mean, variance = (self.memory[key].to(g.device) for key in self.keys)
        is_warm = count >= NUM_WARMUP
        deviation = variance.sqrt() + LEAST_DEVIATION * mean
        score = (g - mean) / deviation
        held = torch.where(is_warm & (score > z), mean + z**2 / score * deviation, g)
        coefficient = share_within(g, held).to(total)
        scale_(named, coefficient)
        first = torch.where(torch.arange(NUM_WARMUP, device=g.device) == count, g, first)
        mean = torch.where(is_warm, alpha * mean + (1 - alpha) * held, first.mean())
        moved = alpha * variance + (1 - alpha) * (held - mean) ** 2
        variance = torch.where(is_warm, moved, first.var(correction=0))
        now = dict(zip(self.keys, (first, count + 1, mean, variance), strict=True))
        # A norm that is not finite leaves no trace.
        self.memory = {
            key: torch.where(g.isfinite(), value, self.memory[key].to(g.device))
            for key, value in now.items()
        }
        return coefficient
