"""Many machines: what one sends, what a reviewer accepts, a campaign on all of them, and one table
of all."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from tlb.system.reasons import Unavailable


def module(name: str) -> ModuleType:
    """Return a module that needs the packages of a fleet. Raises Unavailable("no-extra")
    without them."""
    try:
        return import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as lacking:
        if (lacking.name or "").startswith(("tlb", "experiments")):
            raise
        raise Unavailable("no-extra", f"{lacking.name} is of the extra fleet") from None
