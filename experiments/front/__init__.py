"""What speaks of several chapters or machines: the first page, the book's campaign, comparisons."""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from experiments.article.parameters import table_of_contents

_PACKAGES = [f"experiments.chapters.{name}" for name in table_of_contents()]
# The chapters that have code of their own, in the reading order of _toc.yml.
CHAPTERS: tuple[ModuleType, ...] = tuple(import_module(name) for name in _PACKAGES if find_spec(name))
