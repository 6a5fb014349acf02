"""Attention logits, seen from outside in models of several makers."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stabsweep.guard import GradientGuard
from stabsweep.guard.logits import Logits
from stabsweep.model import MODELS
from stabsweep.signature import Signature


class Fused(nn.Module):
    """Attention with one head of width D, by torch's fused function."""

    def __init__(self, scale: float | None = None) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x, x, is_causal=True, scale=self.scale)


def seen(model: nn.Module, *inputs: Tensor) -> dict[str, float]:
    watch = Logits(model)
    watch.begin()
    model(*inputs)
    watch.end()
    return {name: float(value) for name, value in watch.take().items()}


@pytest.mark.parametrize("scale", [None, 1.0])
def test_fused_attention_shows_its_largest_logit(scale: float | None) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 1, 7, 256)
    factor = 1 / 16 if scale is None else scale
    largest = float((x @ x.transpose(-2, -1) * factor).max())
    assert seen(nn.Sequential(Fused(scale)), x)["0"] == pytest.approx(largest)


def test_torch_modules_show_theirs() -> None:
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(16, 1, bias=False, batch_first=True)
    with torch.no_grad():
        attention.in_proj_weight.copy_(torch.eye(16).repeat(3, 1))
    x = torch.randn(2, 5, 16)
    largest = float((x @ x.transpose(1, 2) / 4).max())
    assert seen(attention, x, x, x)[""] == pytest.approx(largest)
    # As (L, B, E) and without a batch it is the same.
    attention.batch_first = False
    assert seen(attention, *[x.transpose(0, 1)] * 3)[""] == pytest.approx(largest)
    one = float((x[0] @ x[0].T / 4).max())
    assert seen(attention, x[0], x[0], x[0])[""] == pytest.approx(one)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    assert set(seen(encoder, x)) == {"layers.0.self_attn", "layers.1.self_attn"}


def test_our_transformer_and_masks() -> None:
    model = MODELS["transformer"](Signature("tokens", 30, 30, 16, True))
    found = seen(model, torch.randint(30, (4, 16)))
    assert set(found) == {"blocks.0.attention", "blocks.1.attention"}
    assert all(0 < value < 10 and math.isfinite(value) for value in found.values())


def test_a_softmax_over_classes_is_no_attention() -> None:
    class Head(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.softmax(x * 1000, -1)

    assert seen(nn.Sequential(Head()), torch.randn(2, 3, 4)) == {}


def test_wide_logits_are_told_layer_by_layer_before_the_loss_moves() -> None:
    """Unit-variance queries of width 256 with scale 1: a spread of 16, a one-hot softmax."""
    torch.manual_seed(0)
    narrow, wide = Fused(), Fused(scale=1.0)
    model = nn.Sequential(nn.LayerNorm(256), narrow, nn.LayerNorm(256), wide)
    guard = GradientGuard(
        model, torch.optim.SGD(model.parameters(), 1e-4), watch_every=1, progress="off"
    )
    for _ in range(3):
        guard.step(model(torch.randn(2, 1, 7, 256)).pow(2).mean())
    assert [(kind, message.split(" reach")[0]) for _, kind, message in guard.events] == [
        ("logits", "step 0: attention logits of 3")
    ]


def test_a_pass_that_fails_leaves_no_hook() -> None:
    model = nn.Sequential(Fused())
    whole = nn.Sequential(model, nn.Linear(8, 1))
    guard = GradientGuard(whole, torch.optim.SGD(whole.parameters(), 1.0), progress="off")
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        whole(torch.randn(2, 1, 7, 9))
    assert not model[0]._forward_hooks and not model[0]._forward_pre_hooks
    guard.close()
    assert not whole._forward_hooks and not whole._forward_pre_hooks


def num_hooks(model: nn.Module, watch: Logits) -> int:
    """Hooks while a pass is looked at."""
    watch.begin()
    count = sum(len(module._forward_hooks) for module in model.modules())
    model(torch.randint(30, (4, 16)) if isinstance(model[0], nn.Embedding) else torch.randn(4, 8))
    watch.end()
    watch.take()
    return count


def test_after_some_looks_those_layers_alone_are_hooked_that_have_attention() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = nn.Sequential(nn.Embedding(30, 16), nn.TransformerEncoder(layer, 2))
    watch = Logits(model)
    counts = [num_hooks(model, watch) for _ in range(5)]
    assert counts[:3] == [counts[0]] * 3 and counts[0] > 10
    assert counts[3:] == [2, 2]
    plain = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    watch = Logits(plain)
    assert [num_hooks(plain, watch) for _ in range(5)] == [3, 3, 3, 0, 0]
