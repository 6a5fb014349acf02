# stabsweep model=user model.target=examples.cnn:CNN '+space.width={values:[8,16],to:model}'
"""A convolutional net with BatchNorm, on the digits, which the task gives as 64 pixels in a row.

The axis `width` feeds the argument of that name, and every width is mapped on its own. BatchNorm's
running statistics are kept for every trial, so that trials train side by side.
"""

from __future__ import annotations

from torch import Tensor, nn


class CNN(nn.Module):
    """Two convolutions with BatchNorm, then the mean over the picture."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, kernel_size=3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, kernel_size=3, padding=1),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
        )
        self.readout = nn.Linear(2 * width, 10)

    def forward(self, pixels: Tensor) -> Tensor:
        """Scores (B, 10) of pictures (B, 64)."""
        images = pixels.view(-1, 1, 8, 8)
        return self.readout(self.layers(images).mean((2, 3)))
