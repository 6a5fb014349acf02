"""What every test has: one thread, since the nets are too small for more."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
