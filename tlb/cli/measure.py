"""`tlb measure`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from pydantic import ValidationError
from typer import Option

from tlb.lab import build, kernels
from tlb.lab.measuring_setup import Rig
from tlb.lab.record import Point, read_options
from tlb.lab.store import Store, data_root
from tlb.machine import host as hosts
from tlb.page_sizes import PAGES
from tlb.reasons import Unavailable
from tlb.system.files import measuring_lock

ENGINES = ("auto", "c", "numba", "numpy")
Kernel = Annotated[str, typer.Argument(help=f"One of {', '.join(sorted(kernels.CATALOGUE))}.")]


def measure(
    context: typer.Context,
    kernel: Kernel,
    pages: Annotated[str, Option(help=f"{', '.join(PAGES)}.")] = "4k",
    layout: Annotated[
        str | None, Option(help="spread: a line a page; packed: its control; alias: one page.")
    ] = None,
    order: Annotated[str | None, Option(help="Of visits: cycle, random or sequential.")] = None,
    lines: Annotated[int | None, Option(help="Cache lines that are touched.")] = None,
    mode: Annotated[str, Option(help="A variant of the kernel, if it has several.")] = "",
    guest_pages: Annotated[
        str, Option(help="Of a kernel in a guest, the guest's pages; --pages are the host's.")
    ] = "",
    stride_pages: Annotated[int, Option(help="Base pages from a line's page to the next.")] = 1,
    engine: Annotated[str, Option(help=f"{', '.join(ENGINES)} (a published program).")] = "auto",
    repeat: Annotated[int, Option(help="Number of the repeat, which is its seed.")] = 0,
    region_ms: Annotated[int, Option(help="Least time inside timed regions.")] = 60,
    cpu: Annotated[int | None, Option(help="Pin to this CPU.")] = None,
) -> None:
    """Measure one point and print its record as JSON.

    Nothing is stored. Options of one kernel follow its name, as in
    `tlb measure random_touch --bytes 1000000`."""
    if engine not in ENGINES:
        raise Unavailable("bad-parameter", f"engine is one of {', '.join(ENGINES)}, not '{engine}'")
    if guest_pages and (not kernels.declaration(kernel).in_guest or mode not in ("", guest_pages)):
        raise Unavailable(
            "bad-parameter", "--guest-pages is another name for the mode of a kernel in a guest"
        )
    given = {"layout": layout, "order": order, "lines": lines, "pages": pages}
    given |= {"stride_pages": stride_pages, "region_ms": region_ms}
    point = _point(context.args, kernel, engine, mode or guest_pages, given)
    rig = Rig.of(hosts.inspect(cpu=cpu), Store(data_root()).own)
    with measuring_lock():
        record = rig.take(point, repeat)
    print(record.model_dump_json())


def _point(words: list[str], kernel: str, engine: str, mode: str, given: dict[str, Any]) -> Point:
    """Return the point that the options name, and the kernel's own options in `words`. Raises
    Unavailable("bad-parameter")."""
    try:
        own = read_options(words)
        fields = {
            "kernel": kernel,
            "engine": build.engine_for(engine),
            **kernels.shape(kernel, dict(own)),
            **{name: value for name, value in given.items() if value is not None},
            "mode": mode or kernels.first_mode(kernel),
            "options": own,
        }
        return Point.model_validate(fields)
    except ValidationError as error:
        problems = (f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise Unavailable("bad-parameter", "; ".join(problems)) from None
