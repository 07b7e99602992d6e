"""Which points the chapter about code measures: jumps to one page after another, by how far they
can be foreseen, and large texts."""

from __future__ import annotations

from tlb.lab.grid import Scope, octaves
from tlb.lab.record import Point
from tlb.page_sizes import BASE

LINE_BYTES = 64
# By what the front end can know of where a jump leads: it stands in the instruction; it is the same
# each time round; it is random.
KINDS = {
    "direct": ("direct", "cycle"),
    "learned": ("listed", "cycle"),
    "random": ("listed", "random"),
}
LEAST_LINES, MOST_LINES = (
    16,
    16384,
)  # four times the largest second level that is stated for instructions, and more
TEXT_MIB = (1, 10, 30, 100, 200)  # of code that is all used: 30 and 100 are published
HOT_EVERY = (2, 5, 10)  # lines of the largest text, one of which is hot: half, a fifth, a tenth
LARGE_TEXT = "thp"
# Of a coarse grid: the texts that claims compare with the smallest, and the smallest part that is
# hot.
COARSE_MIB, COARSE_EVERY = (1, 30, 100), (10,)


def points(scope: Scope) -> list[Point]:
    """Of a coarse grid one number of lines an octave where entries are fitted, one in four and the
    largest elsewhere."""
    lines = octaves(LEAST_LINES, min(MOST_LINES, scope.most_lines), 2)
    shape, fitted = (
        (lines, lines) if scope.is_fine else (sorted({*lines[::8], lines[-1]}), lines[::2])
    )
    every = [
        *jumps(scope, shape),
        *aliased(scope, fitted),
        *large(scope, shape),
        *texts(scope),
        *hot(scope),
    ]
    return list(dict.fromkeys(every))


def jumps(scope: Scope, lines: list[int]) -> list[Point]:
    """A line of code to a page, and as many side by side."""
    return [
        scope.point("code_chase", mode=mode, order=order, layout=layout, lines=n)
        for mode, order in KINDS.values()
        for layout in ("spread", "packed")
        for n in lines
    ]


def aliased(scope: Scope, lines: list[int]) -> list[Point]:
    """As many pages of addresses, all of them eight pages of memory: random, so that a TLB of C
    holds C of M whatever it replaces."""
    return [
        scope.point("code_chase", mode="listed", order="random", layout="alias", lines=n)
        for n in lines
    ]


def large(scope: Scope, lines: list[int]) -> list[Point]:
    """The same lines on large pages of text."""
    return [scope.point("code_chase", LARGE_TEXT, "listed", order="random", lines=n) for n in lines]


def text_bytes(scope: Scope) -> list[int]:
    """The sizes of text that fit."""
    return [
        mib << 20
        for mib in (TEXT_MIB if scope.is_fine else COARSE_MIB)
        if mib << 20 <= scope.profile.max_working_set
    ]


def texts(scope: Scope) -> list[Point]:
    """So many MiB of code of which every line is jumped to, on base pages and on large ones."""
    return [_text(scope, pages, size) for pages in (BASE, LARGE_TEXT) for size in text_bytes(scope)]


def hot(scope: Scope) -> list[Point]:
    """The largest text of which a part is hot, a line in so many, on base pages and on large ones;
    and as much hot code side by side."""
    sizes = [
        (size, every)
        for size in text_bytes(scope)[-1:]
        for every in (HOT_EVERY if scope.is_fine else COARSE_EVERY)
    ]
    return [
        point
        for pages in (BASE, LARGE_TEXT)
        for size, every in sizes
        for point in (_text(scope, pages, size, every=every), _text(scope, pages, size // every))
    ]


def _text(scope: Scope, pages: str, size: int, **options: int) -> Point:
    return scope.point(
        "code_chase",
        pages,
        "listed",
        order="random",
        layout="packed",
        lines=size // LINE_BYTES,
        **options,
    )
