"""The next character of a text."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from stabsweep.errors import BadInput
from stabsweep.limits import check_count
from stabsweep.signature import Signature
from stabsweep.task._base import Supervised
from stabsweep.task._loss import cross_entropy, entropy


class Text(Supervised):
    """Predict each character of a window from those before it.

    The default text is Python's own help on its topics, 0.46 million characters of English that
    every Python carries; it differs a little from one Python version to the next, and with it
    the blind loss, so give a file to compare machines. A window may start at any character.

    The blind loss is the entropy of the text's character frequencies, about 3.2 nats: what a
    model reaches that has learned how often each character occurs, and nothing of its context.

    Args:
        path: a text file in UTF-8; None for the default text.
        length: characters that a window shows, at least 1.

    Raises:
        BadInput: the file cannot be read, or has too little text for one window.
    """

    name = "text"

    def __init__(self, path: str | None = None, length: int = 32) -> None:
        check_count("task.length", length)
        text = _topics() if path is None else _read(path)
        if path is None and len(text) < length + 2:
            raise BadInput(
                f"task.length={length} is too long for the default text of {len(text)} characters: "
                f"use at most {len(text) - 2}, or give a longer text with task.path"
            )
        if len(text) < length + 2 or len(set(text)) < 2:
            raise BadInput(
                f"task.path={path} is too short: {len(text)} characters, {len(set(text))} of them "
                f"different; windows of {length} need at least {length + 2} and 2"
            )
        self.vocabulary = "".join(sorted(set(text)))
        code = {character: token for token, character in enumerate(self.vocabulary)}
        self.tokens_T = torch.tensor([code[character] for character in text])
        self.window_L = torch.arange(length)
        size = len(self.vocabulary)
        self.signature = Signature("tokens", size, num_outputs=size, length=length, per_step=True)
        self.num_examples = len(text) - length
        self.blind_loss = entropy(self.tokens_T)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Windows (..., B, L) that start at `index` (..., B), and the same one step on."""
        at = index.unsqueeze(-1) + self.window_L
        return self.tokens_T[at], self.tokens_T[at + 1]

    def criterion(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Cross entropy in nats of logits (B, L, V) and tokens (B, L), a scalar."""
        return cross_entropy(outputs, targets)


def _topics() -> str:
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise BadInput("task=text: this Python has no pydoc_data: give task.path=FILE") from None
    return "\n".join(topics[name] for name in sorted(topics))


def _read(path: str) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"task.path={path} is not UTF-8 text (byte {error.start}): give a text file"
        ) from None
    except (OSError, TypeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"task.path={path} cannot be read ({reason}): give a text file") from None
