"""`tlb` and its commands. What takes long to import, a command imports."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from tlb import discovery
from tlb.cli import atlas, bundle, computer, fleet, housekeeping, pool, shown
from tlb.lab import build, grid, kernels
from tlb.lab.record import Point, read_options
from tlb.lab.rig import Rig
from tlb.lab.store import Store, data_root
from tlb.machine import host as hosts
from tlb.page_sizes import PAGES
from tlb.programs import command as programs
from tlb.programs import watch_command
from tlb.reasons import Unavailable
from tlb.system.files import ROOT, disk_errors, measuring_lock
from tlb.system.processes import restore_signals_for_children

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Measure what address translation costs on this computer.",
)
app.add_typer(atlas.app, name="atlas")
app.add_typer(pool.app, name="pool")
app.add_typer(housekeeping.app, name="housekeeping")
app.add_typer(fleet.app, name="fleet")
ParameterPairs = Annotated[
    list[str],
    typer.Option("-p", "--parameter", metavar="NAME=VALUE", help="A chapter's parameter."),
]


def main() -> None:
    """The `tlb` command. What cannot be done is one sentence on stderr and exit 1 (2 for a bad
    argument)."""
    arguments = _pairs(sys.argv[1:]) or ["--help"]
    for name in ("SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
        number = getattr(signal, name, None)
        if (
            number and signal.getsignal(number) is not signal.SIG_IGN
        ):  # under nohup, a terminal that closes ends nothing
            signal.signal(
                number, signal.default_int_handler
            )  # as Ctrl-C: what was started is ended, in order
    restore_signals_for_children()  # those that are ignored here
    try:
        status = app(
            args=arguments, standalone_mode=False
        )  # otherwise typer itself ends the process, in a box
    except Unavailable as why:
        print(why, file=sys.stderr)
        raise SystemExit(2 if why.code == "bad-parameter" else 1) from None
    except Exception as error:
        if not hasattr(
            error, "format_message"
        ):  # a usage error of click, of which typer may carry its own copy
            raise
        print(
            f"{error.format_message().removesuffix('.')}. `tlb --help` lists what there is.",
            file=sys.stderr,
        )
        raise SystemExit(2) from None
    if status == 130:
        print(
            "Interrupted; what was finished is kept, and the same command goes on from there.",
            file=sys.stderr,
        )
    raise SystemExit(status or 0)


def _pairs(arguments: list[str]) -> list[str]:
    """`-p name value`, as Papermill takes it, becomes `-p name=value`, which typer can read."""
    joined: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        joined.append(argument)
        if argument == "-p" and joined[0] not in (
            "try",
            "watch",
        ):  # whose arguments are a program's
            name = next(rest, "")
            joined.append(name if "=" in name else f"{name}={next(rest, '')}")
    return joined


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def measure(
    context: typer.Context,
    kernel: Annotated[
        str, typer.Argument(help="A kernel: " + ", ".join(sorted(kernels.CATALOGUE)))
    ],
    pages: Annotated[str, typer.Option(help=f"{', '.join(PAGES)}.")] = "4k",
    layout: Annotated[
        str | None,
        typer.Option(
            help="spread: one line a page; packed: its control; alias: one page again and again. Default: the kernel's first."
        ),
    ] = None,
    order: Annotated[
        str | None, typer.Option(help="cycle, random or sequential. Default: the kernel's first.")
    ] = None,
    lines: Annotated[
        int | None,
        typer.Option(
            help="How many cache lines are touched. Default: as the kernel's own options say, or 4096."
        ),
    ] = None,
    mode: Annotated[
        str, typer.Option(help="Which of the kernel's variants, where it has any.")
    ] = "",
    guest_pages: Annotated[
        str,
        typer.Option(
            help="The mode of a kernel in a guest: the pages of the guest's own page tables; --pages are the host's."
        ),
    ] = "",
    stride_pages: Annotated[
        int, typer.Option(help="spread, alias: base pages from one line's page to the next's.")
    ] = 1,
    engine: Annotated[
        str, typer.Option(help="auto, c, numba or, of a published program, numpy.")
    ] = "auto",
    repeat: Annotated[int, typer.Option(help="Which repeat: its seed.")] = 0,
    region_ms: Annotated[int, typer.Option(help="The least time inside timed regions.")] = 60,
    cpu: Annotated[int | None, typer.Option(help="Pin to this CPU.")] = None,
) -> None:
    """Measure one point in one process and print its record as JSON; nothing is stored. What a
    kernel alone takes follows its name: tlb measure random_touch --bytes 1000000."""
    if engine not in ("auto", "c", "numba", "numpy"):
        raise Unavailable("bad-parameter", f"engine is auto, c, numba or numpy, not '{engine}'")
    if guest_pages and (not kernels.of(kernel).in_guest or mode not in ("", guest_pages)):
        raise Unavailable(
            "bad-parameter", "--guest-pages is the mode of a kernel in a guest, by another name"
        )
    try:
        own = read_options(context.args)
        chosen = {
            name: value
            for name, value in (("layout", layout), ("order", order), ("lines", lines))
            if value is not None
        }
        point = Point.model_validate(
            {
                "kernel": kernel,
                "engine": build.engine_for(engine, kernel),
                "pages": pages,
                **kernels.shape(kernel, dict(own)),
                **chosen,
                "stride_pages": stride_pages,
                "mode": mode or guest_pages or kernels.first_mode(kernel),
                "options": own,
                "region_ms": region_ms,
            }
        )
    except ValidationError as error:
        problems = (f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise Unavailable("bad-parameter", "; ".join(problems)) from None
    rig = Rig.of(hosts.inspect(cpu=cpu), Store(data_root()).own)
    with measuring_lock():
        record = rig.take(point, repeat)
    print(record.model_dump_json())


app.command()(bundle.bundle)
app.command("check-bundle")(bundle.check_bundle)
app.command("add-bundle")(bundle.add_bundle)
app.command()(computer.inspect)
app.command()(computer.doctor)
app.command()(computer.geometry)
app.command(**programs.SETTINGS)(programs.compare)
app.command(**watch_command.SETTINGS)(watch_command.watch)


def _texts(pairs: list[str]) -> dict[str, str]:
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


@app.command()
def run(
    chapter: str,
    parameter: ParameterPairs = [],  # noqa: B006
    output: Annotated[Path | None, typer.Option(help="The executed notebook.")] = None,
    as_json: shown.Json = False,
) -> None:
    """Execute one chapter about this computer, measuring what is missing: tlb run stlb_cliff -p
    max_working_set 256MiB. Prints where its page is; with --json, the translation profile of all
    that is known of the machine by then."""
    from tlb.report import parameters, publish

    target, given = (
        output or ROOT / "_build" / "runs" / f"{chapter}.ipynb",
        parameters.values(chapter, _texts(parameter)),
    )
    publish.execute(chapter, target, {"machine": "this"} | given)
    if as_json:
        profile = discovery.load("overview.profile")

        print(profile.of_run({"machine": "this"} | given).model_dump_json())
    else:
        print(target)


@app.command()
def book(
    profile: Annotated[str, typer.Option(help=", ".join(grid.profile_names()))] = "quick",
    minutes: Annotated[
        str, typer.Option(help="To measure and build in; 0 builds from what is there.")
    ] = "8",
    parameter: ParameterPairs = [],  # noqa: B006
    machine: Annotated[
        str, typer.Option(help="this, reference, or any published machine.")
    ] = "this",
) -> None:
    """Measure this computer, execute every chapter, and build the site about it: a first one soon,
    and one when the time is over."""
    from tlb.report import parameters

    campaign = discovery.load("overview.campaign")

    first = parameters.table_of_contents()[0]  # all chapters declare the same ones
    texts = {"machine": machine, "profile": profile, "minutes": minutes} | _texts(parameter)
    print(campaign.book(parameters.values(first, texts)))


@app.command()
def publish(
    machine: Annotated[str, typer.Argument(help="A machine in data/own/, or this.")] = "this",
) -> None:
    """Add what was measured here of a machine to what data/ has published of it: git then shows
    what changed."""
    from tlb.report import publish

    judged, profile = discovery.load("overview.judged"), discovery.load("overview.profile")

    folder = publish.rows(machine)
    judged.refresh()
    profile.refresh()
    print(folder)


@app.command()
def compare(
    a: Annotated[
        str,
        typer.Argument(
            help="A machine: NAME or own/NAME in data/, reference, this; NAME@STATE or NAME@BOOT for a part."
        ),
    ],
    b: Annotated[str, typer.Argument(help="Another one, or another state or boot.")],
    chapter: Annotated[
        str | None, typer.Argument(help="Of one chapter; by default of all.")
    ] = None,
    as_json: shown.Json = False,
    html: Annotated[Path | None, typer.Option(help="And as a page, into this file.")] = None,
) -> None:
    """Two machines, or two states of one, quantity by quantity: what differs by more than chance
    and their own runs do."""
    compare, compare_words = (
        discovery.load("overview.compare"),
        discovery.load("overview.compare_words"),
    )

    if html and (html.is_dir() or not html.parent.is_dir()):
        raise Unavailable(
            "bad-parameter", f"--html is a file in a folder that is there, not {html}"
        )
    comparison = compare.compare(a, b, chapter)
    if as_json:
        print(json.dumps(compare_words.as_json(comparison), indent=1))
    else:
        shown.parts(compare_words.told(comparison))
    if html:  # last, so that a full disk hides nothing
        page = discovery.load("overview.compare_page").page

        with disk_errors(html):
            html.write_text(page(comparison), encoding="utf-8")


@app.command()
def refresh(
    chapter: Annotated[
        list[str] | None, typer.Argument(help="Chapters; by default all of them.")
    ] = None,
) -> None:
    """Execute committed chapters again, in place and on the committed results, as the tests compare
    them: after a change of code."""
    from tlb.report import parameters, publish

    judged, profile = discovery.load("overview.judged"), discovery.load("overview.profile")

    chapters = chapter or parameters.table_of_contents()
    for name in chapters:  # all of them before the first is changed
        parameters.declared(name)
    if judged.PAGE in chapters:
        for machine in judged.refresh():
            print(f"The claims are judged anew on {machine}.")
    for machine in profile.refresh() if profile.PAGE in chapters else ():
        print(f"The profile of {machine} is written anew.")
    for name in chapters:
        print(publish.refresh(name))


@app.command()
def site(
    output: Annotated[Path | None, typer.Option(help="Where to; default _build/site.")] = None,
) -> None:
    """Build the site of the committed results, without measuring."""
    from tlb.report.publish import build_site

    print(build_site(ROOT, output or ROOT / "_build" / "site"))


@app.command()
def pdf(
    output: Annotated[Path | None, typer.Option(help="Where to; default _build/book.pdf.")] = None,
) -> None:
    """Print the whole book of the committed results, without measuring; takes Chromium."""
    from tlb.report import press

    print(press.pdf(output or ROOT / "_build" / "book.pdf"))


@app.command()
def release(
    output: Annotated[Path | None, typer.Option(help="Where to; default _build/release.")] = None,
) -> None:
    """Make the release of this commit: notes, site, source and checksums; nothing leaves this
    computer."""
    from tlb.report import release

    print(release.release(output or ROOT / "_build" / "release"))


@app.command()
def bench(
    table: Annotated[list[str] | None, typer.Argument(help="By default all; mean_hop, ...")] = None,
) -> None:
    """Print the ratios that the book promises, each against an independent measurement in the same
    run."""
    bench = discovery.load("bench")

    bench.main(table or ())
