"""What a machine computes, to the last bit, and how that differs from another machine's."""

from stabsweep.fingerprint.comparison import Comparison, compare
from stabsweep.fingerprint.tables import summary
from stabsweep.fingerprint.taken import Fingerprint, read, take
from stabsweep.fingerprint.trainings import NUM_STEPS

__all__ = [
    "NUM_STEPS",
    "Comparison",
    "Fingerprint",
    "compare",
    "read",
    "summary",
    "take",
]
