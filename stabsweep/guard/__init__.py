"""The watch over a real training run: it steps, clips, skips, goes back, and says what happened."""

from stabsweep.guard.cause import Cause, Diagnosis
from stabsweep.guard.gradient_guard import GradientGuard
from stabsweep.guard.outcome import Outcome, TrainingStopped

__all__ = ["Cause", "Diagnosis", "GradientGuard", "Outcome", "TrainingStopped"]
