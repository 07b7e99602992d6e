"""What a page tells, as a test reads it: a table's cells and a chapter's sentences, each fit to be shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType

import pandas as pd

from experiments.article.analysis import Analysis
from experiments.article.render import Html
from experiments.words.prose import Prose
from experiments.words.reasons import Unavailable
from support.synthetic import HOLE


def read(table: Html) -> pd.DataFrame:
    """What a reader sees, as text."""
    head, *lines = (line.split("\t") for line in table.text.splitlines())
    return pd.DataFrame(lines, columns=head)


def numbers_of(column: pd.Series) -> list[float]:
    return [float(text.replace(",", "")) for text in column]


def spoken(prose: ModuleType, a: Analysis, names: Iterable[str]) -> Mapping[str, str]:
    """Every sentence or its reason, each fit to be shown."""
    said = {}
    for name in names:
        try:
            said[name] = getattr(prose, name)(a)
        except Unavailable as why:
            said[name] = Prose(why)
        assert isinstance(said[name], Prose) and said[name].rstrip().endswith("."), (name, said[name])
        assert not HOLE.search(said[name]) and not re.search(r"[a-z],? \.|\.\.|,\.", said[name]), (name, said[name])
    return said


def shown(prose: ModuleType, makes: Iterable[Callable[[Analysis], object]], a: Analysis, is_whole: bool) -> None:
    """Every sentence but the machine's, and every figure and table, or its reason, of which a machine with everything has none."""
    spoken(prose, a, set(prose.__all__))
    for make in makes:
        try:
            assert make(a) is not None
        except Unavailable:
            assert not is_whole, make
