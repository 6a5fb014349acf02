"""What a run stood on: hardware, libraries, threads and numeric switches; checked and compared.

Nothing here has been run under conda: what is read of it follows the documented format of its
records, and is tested with records made by hand.
"""

from stabsweep.environment.snapshot import brief, load, save, take

__all__ = ["brief", "load", "save", "take"]
