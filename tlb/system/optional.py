"""Packages that the core of `tlb` does without, imported with their first use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tlb.system.reasons import Unavailable

# The extra of pyproject.toml that brings a package, where it is not `book`.
_EXTRAS = {
    **dict.fromkeys(("numpy", "pandas", "scipy", "yaml"), "analysis"),
    **dict.fromkeys(("distributed", "dask"), "fleet"),
}


class LazyModule:
    """A module that is imported when something of it is asked for. Raises Unavailable("no-extra")
    then if it is not installed."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        try:
            value = getattr(import_module(self._name), attribute)
        except ModuleNotFoundError as error:
            raise missing_package(error) from None
        setattr(self, attribute, value)  # the next access does not come here
        return value


def no_book(what: str) -> Unavailable:
    """Return why something needs the book, of which only a clone has the files."""
    return Unavailable(
        "no-extra",
        f"{what}: it needs the book, which only a clone of the repository has",
        "Clone it and run `make` there.",
    )


def missing_package(error: ModuleNotFoundError) -> Unavailable:
    """Return the reason for a package that is not installed, with the extra that brings it."""
    package = (error.name or "").partition(".")[0]
    return Unavailable("no-extra", f"{package} is of the extra {_EXTRAS.get(package, 'book')}")
