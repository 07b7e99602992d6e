"""`tlb measure`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from pydantic import ValidationError
from typer import Option

from tlb.cli import terminal
from tlb.machine import host as hosts
from tlb.measure import build, kernels
from tlb.measure.measuring_setup import MeasuringSetup
from tlb.measure.record import Point, parse_kernel_options
from tlb.measure.store import Store, data_root
from tlb.system.files import measuring_lock
from tlb.system.page_sizes import PAGE_KINDS
from tlb.system.reasons import Unavailable

MOST_CPUS = 8192  # that Linux numbers (CONFIG_NR_CPUS)
ENGINES = ("auto", "c", "numba", "numpy")
Kernel = Annotated[
    str,
    typer.Argument(
        help=f"One of {', '.join(sorted(kernels.KERNEL_DECLARATIONS))}.",
        autocompletion=terminal.completing(kernels.KERNEL_DECLARATIONS),
    ),
]
Pages = Annotated[
    str, Option(help=f"{', '.join(PAGE_KINDS)}.", autocompletion=terminal.completing(PAGE_KINDS))
]


Layout = Annotated[
    str | None, Option(help="spread: a line a page; packed: its control; alias: one page.")
]
Lines = Annotated[int | None, Option(min=1, max=2**40, help="Cache lines that are touched.")]
GuestPages = Annotated[
    str, Option(help="Of a kernel in a guest, the guest's pages; --pages are the host's.")
]
StridePages = Annotated[
    int, Option(min=1, max=2**20, help="Base pages from a line's page to the next.")
]
Repeat = Annotated[int, Option(min=0, max=10**6, help="Number of the repeat, which is its seed.")]
RegionMs = Annotated[int, Option(min=1, max=60_000, help="Least time inside timed regions.")]
Cpu = Annotated[int | None, Option(min=0, max=MOST_CPUS - 1, help="Pin to this CPU.")]


def measure(
    context: typer.Context,
    kernel: Kernel,
    pages: Pages = "4k",
    layout: Layout = None,
    order: Annotated[str | None, Option(help="Of visits: cycle, random or sequential.")] = None,
    lines: Lines = None,
    mode: Annotated[str, Option(help="A variant of the kernel, if it has several.")] = "",
    guest_pages: GuestPages = "",
    stride_pages: StridePages = 1,
    engine: Annotated[str, Option(help=f"{', '.join(ENGINES)} (a published program).")] = "auto",
    repeat: Repeat = 0,
    region_ms: RegionMs = 60,
    cpu: Cpu = None,
) -> None:
    """Measure one point and print its record as JSON.

    Nothing is stored. Options of one kernel follow its name, as in
    `tlb measure random_touch --bytes 1000000`."""
    if engine not in ENGINES:
        raise Unavailable(
            "bad-parameter", f"--engine is one of {', '.join(ENGINES)}, not '{engine}'"
        )
    if guest_pages and (not kernels.declaration(kernel).in_guest or mode not in ("", guest_pages)):
        raise Unavailable(
            "bad-parameter", "--guest-pages is another name for the mode of a kernel in a guest"
        )
    given = {"layout": layout, "order": order, "lines": lines, "pages": pages}
    given |= {"stride_pages": stride_pages, "region_ms": region_ms}
    _check_mode(kernel, "--guest-pages" if guest_pages else "--mode", mode or guest_pages)
    mode = mode or guest_pages or kernels.first_mode(kernel)
    point = _point(kernel, engine, mode, _own_options(kernel, context.args), given)
    rig = MeasuringSetup.of(hosts.inspect_machine(cpu=cpu), Store(data_root()).own)
    with measuring_lock():
        record = rig.take(point, repeat)
    print(record.model_dump_json())


def _own_options(kernel: str, words: list[str]) -> list[tuple[str, int]]:
    """Return the kernel's own options in `words`. Raises Unavailable("bad-parameter")."""
    known = kernels.declaration(kernel).options
    for name in (word[2:].partition("=")[0] for word in words if word.startswith("--")):
        if name not in known:
            own = ", ".join(f"--{option}" for option in known) or "no option"
            raise Unavailable(
                "bad-parameter", f"there is no --{name}: {kernel} has {own} of its own"
            )
    return parse_kernel_options(words)


def _check_mode(kernel: str, option: str, mode: str) -> None:
    """Raise Unavailable("bad-parameter") if the kernel has no such mode."""
    modes = [*filter(None, kernels.declaration(kernel).modes)]
    if mode and mode not in modes:
        words = f"is one of {', '.join(modes)}, not '{mode}'" if modes else f"is not for {kernel}"
        raise Unavailable("bad-parameter", f"{option} {words}")


def _point(
    kernel: str, engine: str, mode: str, own: list[tuple[str, int]], given: dict[str, Any]
) -> Point:
    """Return the point that the options name. own: the kernel's. Raises
    Unavailable("bad-parameter")."""
    try:
        fields = {
            "kernel": kernel,
            "engine": build.engine_for(engine),
            **kernels.shape(kernel, dict(own)),
            **{name: value for name, value in given.items() if value is not None},
            "mode": mode,
            "options": own,
        }
        return Point.model_validate(fields)
    except ValidationError as error:
        names = (str(each["loc"][0]).replace("_", "-") for each in error.errors())
        said = (each["msg"].removeprefix("Value error, ") for each in error.errors())
        problems = (f"--{name}: {words}" for name, words in zip(names, said, strict=True))
        raise Unavailable("bad-parameter", "; ".join(problems)) from None
