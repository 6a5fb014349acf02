"""The watch over a real training run."""
