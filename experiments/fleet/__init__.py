"""Many machines: what one sends, what a reviewer accepts, a courier between them, and one table of all."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from experiments.words.reasons import Unavailable


def module(name: str) -> ModuleType:
    """One of this room's that stands on the extra `fleet`. Raises Unavailable("no-fleet") where that is not installed."""
    try:
        return import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as lacking:
        if (lacking.name or "").startswith("experiments"):
            raise
        raise Unavailable("no-fleet", lacking.name or "") from None
