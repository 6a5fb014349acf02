"""A decoder-only Transformer.

Shapes: B batch, L length, D width, N heads, H width of a head, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stabsweep.errors import BadInput
from stabsweep.limits import check_count
from stabsweep.model._check import check_choice, check_flag, check_kind
from stabsweep.model._width_scaling import WidthScaling, width_lr_scales, width_ratio
from stabsweep.signature import Signature


class Attention(nn.Module):
    """Causal multi-head self-attention in plain products: fused kernels cannot be stacked."""

    num_stacked = {"qkv.weight": 3}

    def __init__(
        self, width: int, heads: int, length: int, qk_norm: bool, ratio: float = 1.0
    ) -> None:
        super().__init__()
        self.heads = heads
        self.divisor = math.sqrt(width // heads) * math.sqrt(ratio)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.q_norm = nn.LayerNorm(width // heads, bias=False) if qk_norm else nn.Identity()
        self.k_norm = nn.LayerNorm(width // heads, bias=False) if qk_norm else nn.Identity()
        self.mask_LL: Tensor
        future_LL = torch.ones(length, length, dtype=torch.bool).triu(1)
        mask_LL = torch.zeros(length, length).masked_fill(future_LL, -math.inf)
        self.register_buffer("mask_LL", mask_LL, persistent=False)

    def forward(self, x_BLD: Tensor) -> Tensor:
        """What each step reads from itself and the steps before it, (B, L, D)."""
        length, width = x_BLD.shape[-2:]
        qkv_BLTNH = self.qkv(x_BLD).unflatten(-1, (3, self.heads, width // self.heads))
        q_BNLH, k_BNLH, v_BNLH = (x.transpose(1, 2) for x in qkv_BLTNH.unbind(2))
        # Scaling the queries touches D / (N L) as many numbers as scaling the logits.
        q_BNLH = self.q_norm(q_BNLH) / self.divisor
        logits_BNLL = q_BNLH @ self.k_norm(k_BNLH).mT + self.mask_LL[:length, :length]
        return self.out((logits_BNLL.softmax(-1) @ v_BNLH).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention, then an MLP, each around a residual with a norm before or after it."""

    def __init__(
        self, width: int, heads: int, length: int, norm: str, qk_norm: bool, ratio: float = 1.0
    ) -> None:
        super().__init__()
        self.is_pre = norm == "pre"
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, length, qk_norm, ratio)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x_BLD: Tensor) -> Tensor:
        """The stream (B, L, D) after the block."""
        if self.is_pre:
            x_BLD = x_BLD + self.attention(self.norm_1(x_BLD))
            return x_BLD + self.down(F.gelu(self.up(self.norm_2(x_BLD))))
        x_BLD = self.norm_1(x_BLD + self.attention(x_BLD))
        return self.norm_2(x_BLD + self.down(F.gelu(self.up(x_BLD))))


class Transformer(nn.Module):
    """GPT in small (Vaswani et al. 2017, arXiv:1706.03762): learned positions, GELU, no dropout.

    Norms after the residual (`post`) need warmup where norms before it (`pre`) do not (Xiong et
    al. 2020, arXiv:2002.04745). Norms of queries and keys keep the attention logits from growing
    and move the edge up (Wortsman et al. 2023, arXiv:2309.14322).

    Args:
        signature: of kind `tokens`; `num_inputs` is the vocabulary V.
        depth: number of blocks, at least 1.
        width: D, of the stream; a multiple of `heads`.
        heads: of the attention, at least 1.
        norm: `pre` or `post`: where the norm stands; `pre` has one more before the readout.
        qk_norm: whether queries and keys of each head are normalised (scale, no bias).
        tie_embedding: whether the readout's weight is the embedding. Both tables are then drawn
            as torch draws a readout, from U(-1, 1) / sqrt(D), not as it draws an embedding, from
            N(0, 1), under which the logits would start far too large.
        width_scaling: `standard`, or `mup`: rates that fit one width fit others with as many
            heads, see `stabsweep.model._width_scaling`. Tied tables are then as large as
            at `base_width`.
        base_width: the width at which `mup` changes nothing.

    Raises:
        BadInput: an argument is out of range, or the task gives something else.
    """

    def __init__(
        self,
        signature: Signature,
        *,
        depth: int = 2,
        width: int = 64,
        heads: int = 4,
        norm: Literal["pre", "post"] = "pre",
        qk_norm: bool = False,
        tie_embedding: bool = False,
        width_scaling: WidthScaling = "standard",
        base_width: int = 64,
    ) -> None:
        super().__init__()
        check_kind("transformer", signature, "tokens")
        for key, value in (("depth", depth), ("width", width), ("heads", heads)):
            check_count(f"model.{key}", value)
        if width % heads:
            raise BadInput(f"model.width={width} is not a multiple of model.heads={heads}")
        check_choice("norm", norm, ("pre", "post"))
        check_flag("qk_norm", qk_norm)
        check_flag("tie_embedding", tie_embedding)
        if tie_embedding and signature.num_inputs != signature.num_outputs:
            raise BadInput("model.tie_embedding=true needs a task whose outputs are its tokens")
        self.ratio = ratio = width_ratio(width_scaling, width, base_width)
        self.per_step = signature.per_step
        self.embedding = nn.Embedding(signature.num_inputs, width)
        self.position = nn.Embedding(signature.length, width)
        self.blocks = nn.Sequential(
            *(Block(width, heads, signature.length, norm, qk_norm, ratio) for _ in range(depth))
        )
        self.norm = nn.LayerNorm(width) if norm == "pre" else nn.Identity()
        self.readout = nn.Linear(width, signature.num_outputs, bias=not tie_embedding)
        self.divisor = math.sqrt(ratio)
        if tie_embedding:
            self.readout.weight = self.embedding.weight
            self.divisor = ratio
            bound = 1 / math.sqrt(width) * math.sqrt(ratio)
            for table in (self.embedding, self.position):
                nn.init.uniform_(table.weight, -bound, bound)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (B, L, V) of tokens (B, L), L at most the signature's length.

        Without `per_step` the last step's alone, (B, num_outputs).
        """
        x_BLD = self.embedding(inputs) + self.position.weight[: inputs.shape[-1]]
        x_BLD = self.norm(self.blocks(x_BLD))
        x_BLD = x_BLD if self.per_step else x_BLD[:, -1]
        return self.readout(x_BLD if self.divisor == 1 else x_BLD / self.divisor)

    def lr_scales(self, is_adaptive: bool) -> Mapping[str, float]:
        """Factors of the learning rate that `width_scaling` asks for: name -> factor."""
        inputs = ("embedding.weight", "position.weight")
        return width_lr_scales(self, self.ratio, is_adaptive, inputs)
