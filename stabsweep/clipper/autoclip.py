"""AutoClip: a limit at a percentile of the norms that were seen."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from stabsweep.clipper._base import Clipper, State, Twin, exact, scale_, share_within

WINDOW = 1000
"""Norms that are remembered, the latest. The paper keeps all of a run; this is the default of the
authors' library, and a shorter run is remembered whole."""


class AutoClip(Clipper):
    """The global norm is held to the `clip_percentile` of the norms so far, this one among them.

    Between two norms the percentile is interpolated, as NumPy does. At the paper's 10 nine of ten
    steps are clipped while the norms stay as they are: more a normalisation by a slowly moving
    length than a guard against spikes, for which 90 is a better choice.

    References:
        Seetharaman et al. 2020, arXiv:2007.14469.
    """

    name = "autoclip"
    defaults = {"clip_percentile": 10.0}

    def new_state(self, theta_KP: Tensor) -> State:
        """See `Clipper.new_state`: infinity stands where no norm was seen yet."""
        num_rows, device = len(theta_KP), theta_KP.device
        return {
            "history": torch.full((num_rows, WINDOW), math.inf, dtype=torch.float64, device=device),
            "count": torch.zeros(num_rows, 1, dtype=torch.long, device=device),
        }

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
        history_KW, count_K1 = state["history"], state["count"]
        is_finite_K1, slot_K1 = norm_K1.isfinite(), count_K1 % WINDOW
        kept_K1 = torch.where(is_finite_K1, norm_K1.double(), history_KW.gather(1, slot_K1))
        history_KW.scatter_(1, slot_K1, kept_K1)
        count_K1 += is_finite_K1
        # On a GPU the host would have to wait to know how little is filled.
        on_cpu = history_KW.device.type == "cpu"
        num_seen = min(int(count_K1.max()), WINDOW) if on_cpu else WINDOW
        sorted_KS = history_KW[:, : max(num_seen, 1)].sort(1).values
        last_K1 = count_K1.clamp(1, WINDOW) - 1
        rank_K1 = hyper["clip_percentile"] / 100 * last_K1
        low_K1 = rank_K1.floor()
        below_K1 = sorted_KS.gather(1, low_K1.long())
        above_K1 = sorted_KS.gather(1, torch.minimum(low_K1.long() + 1, last_K1))
        # Infinity less infinity, where a row has seen nothing finite, is no limit.
        limit_K1 = torch.lerp(below_K1, above_K1, rank_K1 - low_K1).nan_to_num(nan=math.inf)
        coef_K1 = share_within(norm_K1.double(), limit_K1).to(norm_K1)
        return grad_KP.mul_(coef_K1), coef_K1

    def twin(self, hyper: Mapping[str, float]) -> Twin:
        """A ring of norms, and `torch.nanquantile` of it."""
        return _PlainAutoClip(hyper["clip_percentile"])


class _PlainAutoClip(Twin):
    keys = ("history", "count")

    def __init__(self, clip_percentile: float) -> None:
        super().__init__()
        self._share = clip_percentile / 100

    @torch.no_grad()
    def clip_(self, named: Mapping[str, nn.Parameter], total: Tensor) -> Tensor:
        norm = exact(total)
        if not self.memory:
            self.memory = {
                "history": norm.new_full((WINDOW,), math.nan),
                "count": norm.new_zeros(()),
            }
        history, count = (self.memory[key].to(norm.device) for key in self.keys)
        is_next = torch.arange(WINDOW, device=norm.device) == count % WINDOW
        history = torch.where(is_next & norm.isfinite(), norm, history)
        self.memory = {"history": history, "count": count + norm.isfinite()}
        limit = torch.nanquantile(history, self._share).nan_to_num(nan=math.inf)
        coefficient = share_within(norm, limit).to(total)
        scale_(named, coefficient)
        return coefficient
