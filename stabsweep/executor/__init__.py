"""Executors: where trials run."""

from __future__ import annotations

from stabsweep.executor.local import Local

__all__ = ["Local"]
