"""The commands that make the book: chapters, site, published data, and what goes out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from tlb.cli import terminal
from tlb.measure import grid
from tlb.measure.store import Store, data_root
from tlb.report import notebooks
from tlb.system.files import ROOT
from tlb.system.reasons import Unavailable
from tlb.system.units import MINUTES_PER_DAY

Parameters = Annotated[
    list[str], Option("-p", "--parameter", metavar="NAME=VALUE", help="A parameter of chapters.")
]
Output = Annotated[Path | None, Option(help="Where to; default: below _build/.")]
BUILD = ROOT / "_build"


def _chapters(incomplete: str) -> list[str]:
    return terminal.completing(notebooks.chapter_names_in_order())(incomplete)


def _machines(incomplete: str) -> list[str]:
    return terminal.completing(["reference", "this", *Store(data_root()).machines()])(incomplete)


ChapterName = Annotated[str, Argument(autocompletion=_chapters)]


def _texts(pairs: list[str]) -> dict[str, str]:
    """Return the texts of parameters by name. Raises Unavailable("bad-parameter")."""
    if nameless := [pair for pair in pairs if not re.match("[^=]+=", pair)]:
        raise Unavailable("bad-parameter", f"-p takes NAME=VALUE, not '{nameless[0]}'")
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


def run(
    chapter: ChapterName,
    parameter: Parameters = [],  # noqa: B006
    output: Output = None,
    as_json: terminal.Json = False,
) -> None:
    """Run one chapter on this computer.

    It measures what is missing and prints the path of the executed notebook; with --json, the
    translation profile of all that is known of the machine. Example:
    `tlb run stlb_cliff -p max_working_set 256MiB`."""
    from tlb.report import notebooks, publish

    terminal.check_output(output)
    target = output or BUILD / "runs" / f"{chapter}.ipynb"
    given = {"machine": "this"} | notebooks.parameter_values(chapter, _texts(parameter))
    publish.execute(chapter, target, given)
    if given["machine"] == "this":
        publish.keep_own_quantities(target)
    if as_json:
        print(notebooks.load_book_module("overview.profile").of_run(given).model_dump_json())
    else:
        print(target)


def book(
    profile: Annotated[str, Option(help=", ".join(grid.profile_names()))] = "quick",
    minutes: Annotated[
        float | None,
        Option(
            min=0,
            max=MINUTES_PER_DAY,
            help="To measure and build, at most; 0 only builds. Default: until all is measured.",
            show_default=False,
        ),
    ] = None,
    parameter: Parameters = [],  # noqa: B006
    machine: Annotated[
        str, Option(help="this, reference, or a published machine.", autocompletion=_machines)
    ] = "this",
) -> None:
    """Measure this computer and build the book about it."""
    from tlb.report import notebooks

    campaign = notebooks.load_book_module("overview.campaign")
    first = notebooks.chapter_names_in_order()[0]  # all chapters declare the same parameters
    texts = {
        "machine": machine,
        "profile": profile,
        "minutes": str(MINUTES_PER_DAY if minutes is None else minutes),
    } | _texts(parameter)
    made = campaign.book(notebooks.parameter_values(first, texts))
    print(made.index)
    if made.failed:
        raise SystemExit(f"{len(made.failed)} of its pages could not be made; they say why.")


def compare(
    names: Annotated[
        list[str],
        Argument(
            metavar="MACHINE...",
            help="NAME in data/, own/NAME, reference or this; a chapter's name limits the table to it.",
            autocompletion=_machines,
        ),
    ],
    as_json: terminal.Json = False,
) -> None:
    """Compare the quantities of two machines or more."""
    from tlb.report import comparison

    contents = notebooks.chapter_names_in_order()
    chapters = [name for name in names if name in contents]
    found = comparison.compare([name for name in names if name not in chapters], chapters)
    if as_json:
        print(json.dumps(comparison.as_json(found), indent=1))
    else:
        terminal.parts(comparison.tables(found))


def refresh(
    chapter: Annotated[
        list[str] | None, Argument(help="Chapters; default: all.", autocompletion=_chapters)
    ] = None,
    machine: Annotated[
        str, Option(help="Only make the quantities of this published machine, in all chapters.")
    ] = "",
) -> None:
    """Execute committed chapters again, on the published data."""
    from tlb.report import notebooks, publish

    if machine:
        publish.refresh_quantities(Store(data_root()).resolve(machine))
        return
    profile = notebooks.load_book_module("overview.profile")
    chapters = chapter or notebooks.chapter_names_in_order()
    for name in chapters:  # all of them, before the first is changed
        notebooks.declared_parameters(name)
    for changed in profile.refresh() if profile.PAGE in chapters else ():
        print(f"Wrote the profile of {changed} again.")
    for name in chapters:
        terminal.stage(f"Executing {name}.")
        print(publish.refresh(name))


def site(output: Output = None) -> None:
    """Build the site from the published data."""
    from tlb.report.publish import build_site

    terminal.check_output(output)
    print(build_site(ROOT, output or BUILD / "site"))
