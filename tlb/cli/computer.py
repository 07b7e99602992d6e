"""`tlb inspect`, `tlb doctor`, `tlb geometry` and `tlb pool`: what this computer is and has."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tlb.cli import terminal
from tlb.machine import changed_settings, pools
from tlb.machine import doctor as doctors
from tlb.machine import host as hosts
from tlb.system.page_sizes import BASE_PAGES
from tlb.system.reasons import Unavailable
from tlb.system.units import format_size, parse_size

if TYPE_CHECKING:
    import pandas as pd

    from tlb.stats.geometry import EntryPageBacking, TlbGeometry, TlbLevel
    from tlb.stats.geometry_curves import BoundedEstimate


def inspect(as_json: terminal.Json = False) -> None:
    """Show CPU, caches, TLBs, page sizes, counters and limits."""
    host = hosts.inspect_machine()
    if as_json:
        print(json.dumps(host.model_dump(mode="json"), indent=1))
        return
    # no table, which would pad all lines to the longest
    for label, value in doctors.host_description(host):
        terminal.prose(f"{label:24} {value}", hanging="    ")


FailOn = Annotated[
    Literal["never", "error", "warning", "note"],
    typer.Option(help="Exit with 1 for a finding that is so severe."),
]


def doctor(
    fix_hints: Annotated[
        bool, typer.Option("--fix-hints", help="Print only the commands, one a line.")
    ] = False,
    fail_on: FailOn = "never",
    as_json: terminal.Json = False,
    html: terminal.Html = None,
) -> None:
    """Show what disturbs measurements on this computer, with remedies."""
    from tlb.measure import events
    from tlb.programs import reports

    terminal.check_files(html=html)
    host = hosts.inspect_machine()
    advice = doctors.advice(host)
    kind = host.core.kind if host.core else ""
    if host.pmu.tier == "counters" and not events.are_known(host.microarchitecture, kind):
        advice.append(doctors.no_events(host))
    if as_json:
        findings = [each._asdict() | {"command": doctors.command(each)} for each in advice]
        print(json.dumps(reports.document("doctor", {"findings": findings}, host), indent=1))
    elif fix_hints:
        for command in doctors.commands(advice):
            print(command)
    else:
        _show_advice(advice)
    if html:
        terminal.write(html, reports.doctor_page(advice, doctors.host_description(host)))
    if fail_on != "never" and doctors.are_as_bad(advice, fail_on):
        raise SystemExit(1)


def _show_advice(advice: list[doctors.Advice]) -> None:
    """Print findings, the most severe first."""
    for severity in doctors.ADVICE_SEVERITIES:
        for each in (each for each in advice if each.severity == severity):
            terminal.prose(f"{severity}: {each.topic}. {each.finding}")
            terminal.prose(each.remedy, indent="    ")


def geometry(
    pages: Annotated[str, typer.Option(help="4k, or 2m, which needs a pool of huge pages.")] = "4k",
    as_json: terminal.Json = False,
) -> None:
    """Infer the TLB's entries, ways and costs in half a minute."""
    if pages not in (BASE_PAGES, "2m"):
        raise Unavailable("bad-parameter", f"--pages is 4k or 2m, not '{pages}'")
    host, backing = hosts.inspect_machine(), None
    if pages != BASE_PAGES:
        pools.check(pages)
    from tlb.measure import survey
    from tlb.measure.measuring_setup import MeasuringSetup
    from tlb.measure.store import Store
    from tlb.stats import splinter
    from tlb.stats.geometry import infer_tlb_geometry

    with tempfile.TemporaryDirectory(prefix="tlb-geometry-") as folder:
        rig = MeasuringSetup.of(host, Store(folder), counters=False)
        frame, notes = survey.measured(rig, pages)
        if pages != BASE_PAGES and not frame.empty:
            backing = splinter.judge_page_backing(survey.pieces(rig, pages), host.hypervisor)
    lacking = [note.text for note in notes]
    if frame.empty:
        raise SystemExit("\n".join(lacking))
    stated = [tlb.entries for tlb in hosts.data_tlbs(host, pages)]
    try:
        inferred = infer_tlb_geometry(frame, stated, hosts.data_caches(host), lacking)
    except Unavailable:
        for note in lacking:  # which may be why there is no step
            print(note, file=sys.stderr)
        if backing:
            sentence = backing_sentence(backing)
            print(backing.model_dump_json(indent=1) if as_json else sentence)
        raise
    inferred = inferred.model_copy(update={"backing": backing})
    if as_json:
        print(inferred.model_dump_json(indent=1))
        return
    terminal.parts(geometry_report(inferred))


# --- the measured geometry in words: two tables and what the opinions say

_LEVEL_NAMES = {1: "L1 dTLB", 2: "STLB"}
_MISSING = "–"


def level_name(level: TlbLevel) -> str:
    return (
        "first level seen"
        if level.is_alone
        else _LEVEL_NAMES.get(level.level, f"level {level.level}")
    )


def _text(estimate: BoundedEstimate | None, decimals: int = 1, per: float = 1.0) -> str:
    """Value and bounds, each divided by `per`; the bounds only where rounding leaves them apart."""
    if estimate is None:
        return _MISSING
    value, low, high = (
        f"{bound / per:,.{decimals}f}" for bound in (estimate.value, estimate.low, estimate.high)
    )
    return (
        f"{value} ({low} to {high})"
        if (estimate.high - estimate.low) / per >= 10**-decimals / 2
        else value
    )


def levels_table(geometry: TlbGeometry) -> pd.DataFrame:
    """A row a level: entries by each opinion, CPUID's word, hit cost, ways."""
    import pandas as pd

    return pd.DataFrame(
        [
            {
                "level": level_name(level),
                "entries": _text(level.entries, 0),
                "by": level.entries.method.partition(",")[0],
                **{
                    name: _text(level.opinions.get(name), 0) for name in ("price", "alias", "draws")
                },
                "CPUID": _MISSING if level.stated is None else f"{level.stated:,}",
                f"hit, {geometry.unit}": "0" if level.level == 1 else _text(level.hit_cost),
                "ways": _MISSING if level.ways is None else str(level.ways or "all"),
            }
            for level in geometry.levels
        ]
    )


def walks_table(geometry: TlbGeometry) -> pd.DataFrame:
    """A row a place of the page table: how many pages, and what a walk adds to a hit in the last
    level."""
    import pandas as pd

    rows = []
    for walk in geometry.walks:  # one page in: of `stride_pages` neighbours one is touched
        row = {
            "page table in": walk.table_in,
            "lines of it": format_size(walk.table_bytes),
            "pages": f"{walk.pages:,}",
            "one in": str(walk.stride_pages),
            f"walk, {geometry.unit}": _text(walk.cost, 0),
        }
        if geometry.unit == "cycles":
            row["ns"] = _text(walk.cost, 0, geometry.core_ghz) if geometry.core_ghz else _MISSING
        rows.append(row)
    return pd.DataFrame(rows, columns=list(rows[0]) if rows else ["page table in", "pages"])


def geometry_report(geometry: TlbGeometry) -> list[pd.DataFrame | str]:
    """Return all that `tlb geometry` shows: the two tables, then the sentences."""
    return [levels_table(geometry), walks_table(geometry), *geometry_sentences(geometry)]


def geometry_sentences(geometry: TlbGeometry) -> list[str]:
    """What the opinions say of each level, of the ways, of the alias layout, and what was
    lacking."""
    from tlb.stats.geometry import COLLIDING_STRIDE_PAGES

    lines = [f"{level_name(level)}: {level.verdict}" for level in geometry.levels]
    lines += [
        f"{level_name(level)}: all pages fit wherever they lie, up to {COLLIDING_STRIDE_PAGES} pages apart, "
        "so it has no sets."
        for level in geometry.levels
        if level.ways == 0
    ]
    lines += [
        f"Its ways are not known: {level.ways_reason}"
        for level in geometry.levels
        if level.ways_reason
    ]
    for reason in dict.fromkeys(walk.reason for walk in geometry.walks if walk.reason):
        places = " and ".join(walk.table_in for walk in geometry.walks if walk.reason == reason)
        lines.append(f"Walks with the page table in {places} were not measured. {reason}")
    return (
        lines
        + alias_penalty_sentences(geometry)
        + geometry.notes
        + ([backing_sentence(geometry.backing)] if geometry.backing else [])
    )


def backing_sentence(backing: EntryPageBacking) -> str:
    return f"Large pages: {backing.verdict}. {backing.evidence}"


def alias_penalty_sentences(geometry: TlbGeometry) -> list[str]:
    """What the alias layout pays for being aliased, where it pays."""
    if geometry.alias_penalty is None or geometry.alias_penalty < 1:
        return []
    return [
        "Reaching one line by another address than the last visit did adds "
        f"{geometry.alias_penalty:.0f} {geometry.unit} here. AMD's first-level caches predict "
        "their way from a hash of the virtual address and pay for a wrong guess; others may have a "
        "price of their own. Every plateau of the alias layout pays it alike, so its steps are "
        "where they would be without."
    ]


# --- tlb pool

pool_app = typer.Typer(invoke_without_command=True)


@pool_app.callback()
def pools_now(context: typer.Context, as_json: terminal.Json = False) -> None:
    """Show the pools of huge pages, reserve pages and put them back."""
    if context.invoked_subcommand:
        return
    by_page, changed = pools.look(), pools.changes()
    if as_json:
        rows = [
            {**state.model_dump(), "bytes": state.total * parse_size(page)}
            for page, state in by_page.items()
        ]
        changes = {page: change.model_dump() for page, change in changed.items()}
        print(json.dumps({"pools": rows, "changed": changes}, indent=1))
        return
    if not by_page:
        print("This Linux kernel has no pools of huge pages.")
    for page, state in by_page.items():
        print(
            f"{page}: {state.total} pages ({format_size(state.total * parse_size(page))}), "
            f"{state.free} free, {state.reserved} reserved, {state.surplus} surplus"
        )
    for page, change in changed.items():
        print(
            f"{page}: {change.before} pages before, set to {change.written[-1]} since. "
            "`tlb pool restore` restores the old number."
        )


@pool_app.command("reserve")
def reserve_pages(
    page: Annotated[str, typer.Option("--pages", help="2m, 1g, or another size in `tlb pool`.")],
    size: Annotated[str, typer.Option(help="Free afterwards, such as 4GiB.")],
) -> None:
    """Grow a pool until a size is free (root); exit 1 if Linux gives less."""
    got = pools.reserve(page, terminal.parsed_size("--size", size))
    print(
        f"{page}: {got.free} pages are free ({got.wanted} requested); {got.added} were added, "
        f"the pool has {got.total}."
    )
    if got.why:
        raise SystemExit(got.why)


@pool_app.command("restore")
def restore_pools() -> None:
    """Restore pools, and page sizes that a killed `tlb try` left, unless changed since (root)."""
    restored, left = pools.restore(), changed_settings.restore(Path("/"), "try")
    if left:
        terminal.restored(left, "/{name}: from {found} to {now}.", "")
    terminal.restored(restored, "{page}: from {found} pages to {total}.", "No pool was changed.")
