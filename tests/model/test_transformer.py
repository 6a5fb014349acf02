import math

import pytest
import torch
from torch.func import functional_call
from torch.nn import functional as F

from stabsweep import model
from stabsweep.errors import BadInput
from stabsweep.model.transformer import Transformer
from stabsweep.signature import Signature

TOKENS = Signature("tokens", num_inputs=11, num_outputs=11, length=8, per_step=True)
SMALL = {"depth": 2, "width": 12, "heads": 3}
VARIANTS = [
    {"norm": norm, "qk_norm": qk_norm, "tie_embedding": tie}
    for norm in ("pre", "post")
    for qk_norm in (False, True)
    for tie in (False, True)
]


def by_hand(transformer, tokens_BL, norm, qk_norm):
    """The logits with torch's fused attention, head by head."""
    x_BLD = F.embedding(tokens_BL, transformer.embedding.weight) + transformer.position.weight
    for block in transformer.blocks:
        attention = block.attention

        def attend(x_BLD, attention=attention):
            heads = []
            q_BLD, k_BLD, v_BLD = attention.qkv(x_BLD).chunk(3, -1)
            for head in range(3):
                at = slice(head * 4, head * 4 + 4)
                q_BLH, k_BLH = q_BLD[..., at], k_BLD[..., at]
                if qk_norm:
                    q_BLH = F.layer_norm(q_BLH, (4,), attention.q_norm.weight)
                    k_BLH = F.layer_norm(k_BLH, (4,), attention.k_norm.weight)
                heads.append(
                    F.scaled_dot_product_attention(q_BLH, k_BLH, v_BLD[..., at], is_causal=True)
                )
            return attention.out(torch.cat(heads, -1))

        def mlp(x_BLD, block=block):
            return block.down(F.gelu(block.up(x_BLD)))

        if norm == "pre":
            x_BLD = x_BLD + attend(block.norm_1(x_BLD))
            x_BLD = x_BLD + mlp(block.norm_2(x_BLD))
        else:
            x_BLD = block.norm_1(x_BLD + attend(x_BLD))
            x_BLD = block.norm_2(x_BLD + mlp(x_BLD))
    if norm == "pre":
        x_BLD = transformer.norm(x_BLD)
    return F.linear(x_BLD, transformer.readout.weight, transformer.readout.bias)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_equals_the_same_network_with_fused_attention(variant):
    transformer = Transformer(TOKENS, **SMALL, **variant).double()
    with torch.no_grad():
        for parameter in transformer.parameters():
            parameter.add_(torch.randn_like(parameter) / 10)
    tokens_BL = torch.randint(11, (4, 8))
    expected = by_hand(transformer, tokens_BL, variant["norm"], variant["qk_norm"])
    torch.testing.assert_close(transformer(tokens_BL), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_token_changes_nothing_before_it(variant):
    transformer = Transformer(TOKENS, **SMALL, **variant)
    tokens_BL = torch.randint(11, (4, 8))
    other_BL = tokens_BL.clone()
    other_BL[:, 5] = (other_BL[:, 5] + 1) % 11
    before, after = transformer(tokens_BL), transformer(other_BL)
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5], after[:, 5])
    assert not torch.allclose(before[:, 7], after[:, 7])


def test_reads_shorter_windows():
    transformer = Transformer(TOKENS, **SMALL)
    tokens_BL = torch.randint(11, (4, 8))
    torch.testing.assert_close(transformer(tokens_BL[:, :3]), transformer(tokens_BL)[:, :3])


def test_gives_the_last_step_alone_when_the_task_wants_one_output():
    last = Transformer(Signature("tokens", 11, 2, length=8), **SMALL)
    assert last(torch.randint(11, (4, 8))).shape == (4, 2)


def test_a_tied_embedding_is_one_parameter_and_survives_functional_call():
    transformer = Transformer(TOKENS, **SMALL, tie_embedding=True)
    assert transformer.readout.weight is transformer.embedding.weight
    named = dict(transformer.named_parameters())
    assert "embedding.weight" in named and "readout.weight" not in named
    tokens_BL = torch.randint(11, (4, 8))
    new = {name: torch.randn_like(parameter) for name, parameter in named.items()}
    found = functional_call(transformer, new, (tokens_BL,))
    with torch.no_grad():
        for name, parameter in named.items():
            parameter.copy_(new[name])
    torch.testing.assert_close(found, transformer(tokens_BL))


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_first_loss_is_near_that_of_a_uniform_guess(variant):
    torch.manual_seed(0)
    text = Signature("tokens", num_inputs=100, num_outputs=100, length=16, per_step=True)
    transformer = Transformer(text, **variant)
    tokens_BL = torch.randint(100, (8, 17))
    logits_BLV = transformer(tokens_BL[:, :-1])
    loss = F.cross_entropy(logits_BLV.flatten(0, 1), tokens_BL[:, 1:].flatten())
    assert abs(loss.item() - math.log(100)) < 1


def test_the_mask_is_no_parameter_and_is_not_saved():
    transformer = Transformer(TOKENS, **SMALL)
    assert not any("mask" in name for name in transformer.state_dict())
    assert transformer.double().blocks[0].attention.mask_LL.dtype == torch.float64


@pytest.mark.parametrize(
    "args, message",
    [
        ({"width": 64, "heads": 5}, "model.width=64 is not a multiple of model.heads=5"),
        ({"heads": 0}, "model.heads=0 is not allowed"),
        ({"norm": "none"}, "model.norm='none' is not known: use one of post, pre"),
        ({"qk_norm": "yes"}, "model.qk_norm='yes' is not allowed: use true or false"),
        ({"tie_embedding": 1}, "model.tie_embedding=1 is not allowed"),
    ],
)
def test_names_the_argument_that_is_wrong(args, message):
    with pytest.raises(BadInput, match=message):
        model.build("transformer", TOKENS, **args)


def test_cannot_tie_what_has_other_outputs():
    with pytest.raises(BadInput, match="model.tie_embedding=true needs"):
        Transformer(Signature("tokens", 11, 2, length=8), **SMALL, tie_embedding=True)
