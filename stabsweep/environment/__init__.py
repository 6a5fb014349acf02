"""What a run stood on: hardware, libraries, threads and numeric switches."""

from stabsweep.environment.snapshot import save, take

__all__ = ["save", "take"]
