import pytest

from stabsweep import fingerprint

NUM_STEPS = 12
"""Of the trainings here: few, since their course is another test's affair."""


@pytest.fixture(scope="session")
def taken():
    """The fingerprint of this process."""
    return fingerprint.take("cpu", NUM_STEPS)
