"""The object that a notebook talks to: which machine it is about, and its rows."""

from __future__ import annotations

import ast
import shutil
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Any

import pandas as pd
from IPython.utils.capture import capture_output

from tlb.machine import host as hosts
from tlb.machine.host import Host, tlb_entries
from tlb.measure import build, campaign, grid, kernels, machine_states, row_tables, survey
from tlb.measure.campaign import CampaignOutcome
from tlb.measure.grid import MeasuringProfile, Scope
from tlb.measure.measuring_setup import MeasuringSetup, usable_bytes
from tlb.measure.outcome import SESSIONS_DOCUMENT, SessionCounts
from tlb.measure.record import Point
from tlb.measure.row_tables import rows_of_last_campaign
from tlb.measure.store import Store, data_root
from tlb.report import claims, notebooks, page
from tlb.report.card import THIS_COMPUTER_LABEL, machine_display_name, short_machine_names
from tlb.report.page import CompletenessLine
from tlb.report.quantities import FEWEST_MAPPINGS_WITH_INTERVAL, QUANTITIES_DOCUMENT
from tlb.system.files import ROOT
from tlb.system.page_sizes import PAGE_KINDS
from tlb.system.reasons import Unavailable, UnmeasuredNote, explain_reason, none_if_unavailable
from tlb.system.units import format_size, parse_size

_FEW_MAPPINGS = ["fewer than five mappings each", "one mapping each"]
_FEW_MAPPINGS += [f"at most {number} mappings each" for number in ("two", "three", "four")]
_MEMORY_LIMIT = "half of the memory that is free"


@dataclass
class Subject:
    """The machine of a chapter, as this computer or as published."""

    name: str
    parameters: dict[str, Any]
    data: Store  # data/: what is published, and separately what was measured here
    notes: list[UnmeasuredNote] = field(default_factory=list)  # what was lacking
    # by grid: the measurements without time or disturbed, and of how many
    left_out: dict[str, tuple[int, int]] = field(default_factory=dict)
    # asked for, and measured by another compiler or library than is here now: which
    replaced: dict[Point, str] = field(default_factory=dict)
    head: CompletenessLine | None = None  # of a page about another machine than the reference

    @cached_property
    def is_this(self) -> bool:
        """Whether it is about this computer."""
        return self.parameters["machine"] == "this"

    @cached_property
    def store(self) -> Store:
        """The rows measured here if it is about this computer, else those published."""
        return self.data.own if self.is_this else self.data

    @cached_property
    def machine(self) -> str:
        """The machine's id, the name of its folder in the store."""
        if self.is_this:
            return hosts.machine_id(self.host)
        return self.store.resolve(self.parameters["machine"], experiment=self.name)

    @cached_property
    def is_reference(self) -> bool:
        """Whether it is about the machine that the chapter's text is about, as published."""
        return not self.is_this and self.machine == self.data.reference(self.name)

    @cached_property
    def stands_in(self) -> bool:
        """Whether it replaces the reference machine, which lacks this chapter."""
        return self.parameters["machine"] == "reference" and self.machine != self.store.reference()

    @property
    def shown_name(self) -> str:
        """The machine as headings and notes call it."""
        return (
            THIS_COMPUTER_LABEL if self.is_this else machine_display_name(self.store, self.machine)
        )

    @cached_property
    def host(self) -> Host:
        """The machine as inspected now, or as published in the state of this chapter's rows."""
        if self.is_this:
            return hosts.inspect_machine()
        host = Host.model_validate(self.store.read_machine(self.machine))
        if not machine_states.has_several_states(self.store, self.machine):
            return host
        frame = rows_of_last_campaign(self.store.load(self.machine, self.name))
        if frame.empty:
            return host
        state = str(frame["state"].mode()[0])
        return (
            none_if_unavailable(
                machine_states.description_of_state, self.store, self.machine, state
            )
            or host
        )

    def described(self, state: str) -> Host:
        """Return the machine as it was in the state of a row. Raises Unavailable("no-data") if it
        was not recorded."""
        if state == hosts.state_digest(self.host):
            return self.host
        return machine_states.description_of_state(self.store, self.machine, state)

    @cached_property
    def profile(self) -> MeasuringProfile:
        """The profile with this run's overrides. Committed data are shown whole unless
        max_working_set is given."""
        base = grid.load_profile(self.parameters["profile"])
        asked, changes = self.parameters["max_working_set"], dict[str, int]()
        if self.parameters["repeats"]:
            changes["repeats"] = changes["shape_repeats"] = self.parameters["repeats"]
        usable = sys.maxsize
        if self.is_this:
            usable = max(usable_bytes(self.host, kind) for kind in PAGE_KINDS)
        if asked != "profile":
            most = changes["max_working_set"] = parse_size(asked)
            if most > usable:
                raise Unavailable(
                    "bad-parameter",
                    f"max_working_set {format_size(most)} is more than the {format_size(usable)} "
                    f"that may be measured here, {_MEMORY_LIMIT} or what a pool holds",
                )
        elif not self.is_this:
            changes["max_working_set"] = sys.maxsize
        elif base.max_working_set > usable:
            changes["max_working_set"] = usable
            limit = f"{format_size(usable)}, {_MEMORY_LIMIT} here or what a pool holds."
            self._note(UnmeasuredNote(f"The sweep ends at {limit}"))
        return base.model_copy(update=changes)

    @cached_property
    def engine(self) -> str:
        """The engine of points that name none."""
        return build.engine_for(self.parameters["engine"]) if self.is_this else "c"

    @cached_property
    def scope(self) -> Scope:
        """What the chapter's grid may ask for."""
        profile = self.profile if self.is_this else grid.load_profile(self.parameters["profile"])
        return Scope(
            profile,
            self.engine,
            tuple(tlb_entries(self.host)),
            len(self.host.usable_cpus),
            base_page_bytes=self.host.base_page_bytes,
        )

    @property
    def _seconds(self) -> float:
        """The time for measuring."""
        return 60 * self.parameters["minutes"]

    def _note(self, note: UnmeasuredNote) -> None:
        """Add a note once; if it may measure, print it to stderr as well."""
        if note not in self.notes:
            self.notes.append(note)
            if self._seconds:
                print(note.text, file=sys.stderr)


_TOOLS = ("cc", "go", "java", "javac", "mvn", "rustc")  # with which documents are made


class Chapter(Subject):
    """A chapter about one machine: its rows and documents, measured first about this computer."""

    # --- its rows

    @cached_property
    def rig(self) -> MeasuringSetup:
        """This computer, inspected and probed once. Raises Unavailable("not-linux")."""
        self._require_linux()
        if self.parameters["engine"] == "auto" and build.engine_for("auto") == "numba":
            self._note(
                UnmeasuredNote(
                    "The numba engine serves: " + explain_reason("no-compiler"), "no-compiler"
                )
            )
        rig = MeasuringSetup.of(self.host, self.store, self.machine)
        if reason := rig.plan.lacking.get("core_cycles"):
            self._note(
                UnmeasuredNote(
                    "Timing only, no hardware counters: " + explain_reason(reason), reason
                )
            )
        machine_states.write_description(self.store, self.machine, self.host)
        return rig

    def _require_linux(self) -> None:
        if self.host.os != "Linux":
            raise Unavailable("not-linux")

    def measure(self, points: Sequence[Point], name: str = "") -> pd.DataFrame:
        """Return the rows of an experiment, by default this chapter's, by the engines of `points`.

        About this computer, points without rows are measured first. Raises Unavailable, no-data if
        there are no rows; on the page of another machine than the reference, its own experiment
        then has no rows, with the columns of the reference's.
        """
        if self.is_this:
            self.campaign({name or self.name: points}, seconds=self._seconds)
            if self.head:
                self.head.update(self.left_out)
        try:
            frame = self._rows(name or self.name, points)
        except Unavailable as why:
            if name or not self.head or why.code != "no-data":
                raise
            return chapter_of_published_machine(self.name, "reference").kept(self.name)[:0]
        frame = kernels.with_option_columns(frame, {point.kernel for point in points})
        return frame[kernels.is_within(frame, self.profile.max_working_set)].reset_index(drop=True)

    def campaign(
        self,
        grids: Mapping[str, Collection[Point]],
        *,
        seconds: float,
        rounds: float = inf,
        **how: Any,
    ) -> CampaignOutcome:
        """Measure what is missing of these grids (`campaign.run` has the arguments).

        A point that a claim compares gets the profile's `repeats`, and up to nine if its interval
        is wide; any other gets `shape_repeats`.
        Notes say what was lacking and, at the end of all rounds, what there was no time for.
        """
        profile, compared = self.profile, claims.compared_points(self.scope)
        outcome = campaign.run(
            self.rig,
            grids,
            lambda point: profile.repeats if compared(point) else profile.shape_repeats,
            most=campaign.most_mappings(profile.repeats),
            seconds=seconds,
            compared=compared,
            rounds=rounds,
            **how,
        )
        names = ", ".join(grids)
        if seconds:
            print(f"{names}: {outcome}.", file=sys.stderr)
        for note in _notes_of_lacks(outcome.lacking):
            self._note(note)
        if outcome.skipped and rounds == inf:
            every = outcome.skipped + outcome.cached + outcome.measured
            self.left_out[names] = outcome.skipped + self._disturbed(grids), every
            left_out = f"{outcome.skipped} of {every} measurements of {names} were left out"
            self._note(Unavailable("no-time", left_out).note)
        return outcome

    def _disturbed(self, grids: Mapping[str, Collection[Point]]) -> int:
        """Return the number of measurements of these grids that pages leave out as disturbed."""
        frames = []
        for name, points in grids.items():
            asked = {(point.kernel, point.engine) for point in points}
            rows = row_tables.current_rows(
                self.store.load(self.machine, name), hosts.state_digest(self.host)
            )
            rows = row_tables.rows_of_one_engine(rows, asked, self.engine)
            is_left_out = row_tables.is_disturbed_of_few(rows, FEWEST_MAPPINGS_WITH_INTERVAL)
            frames.append(rows.loc[is_left_out, row_tables.PROCESS_COLUMNS])
        return len(pd.concat(frames).drop_duplicates()) if frames else 0

    def survey(self, first: Sequence[Point] = ()) -> pd.DataFrame:
        """Return the rows of the geometry of 4 KiB pages, measured first about this computer.

        first: the points to begin with, by default `survey.coarse`. Raises Unavailable.
        """
        if self.is_this:
            _, lacking = survey.measured(
                self.rig,
                "4k",
                repeats=self.profile.repeats,
                most_bytes=self.profile.max_working_set,
                first=first,
                seconds=self._seconds,
            )
            for note in lacking:
                self._note(note)
        return self.kept(survey.NAME)

    def kept(self, name: str, engine: str = "") -> pd.DataFrame:
        """Return the rows of an experiment that exist: of this computer's present state, or of a
        published machine's last campaign. engine: of kernels with rows of several engines; by
        default the chapter's. Raises Unavailable("no-data")."""
        if self.is_this and self._seconds:  # there may be more by the next time
            return self._rows(name, (), engine)
        if (name, engine) not in self._read:
            self._read[name, engine] = self._rows(name, (), engine)
        return self._read[name, engine]

    def _rows(self, name: str, points: Sequence[Point], engine: str = "") -> pd.DataFrame:
        """Published rows of `points` may be of the other engine and of another profile."""
        asked = {(point.kernel, point.engine) for point in points}
        frame = self.store.load(self.machine, name)
        if self.is_this:
            state = hosts.state_digest(self.host)
            programs = row_tables.replaced_programs(frame, state)
            made_by = {point: programs.get((point.kernel, point.engine), "") for point in points}
            self.replaced |= {point: program for point, program in made_by.items() if program}
            frame = row_tables.current_rows(frame, state)
        else:
            frame = rows_of_last_campaign(frame)
            asked &= {*zip(frame["kernel"], frame["engine"], strict=True)}
        regions = {(point.kernel, point.region_ms) for point in points}
        frame = row_tables.rows_of_one_engine(frame, asked, engine or self.engine)
        frame = row_tables.rows_of_one_profile(frame, regions, is_strict=self.is_this)
        if self.is_this:
            frame = row_tables.without_disturbed_of_few(frame, FEWEST_MAPPINGS_WITH_INTERVAL)
        if frame.empty:
            raise Unavailable("no-data", f"{name} on {self.machine}")
        if self.head:
            self.head.has_rows = True
        return kernels.with_defaults(frame)

    @property
    def few_mappings(self) -> str:
        """How many mappings the points of this chapter have, or of all chapters on a page of no
        chapter, in words, if half of the machine's points in chapters or more have fewer than
        decide; else ""."""
        measured = self._mappings
        each = pd.concat(measured.values()) if measured else pd.Series([0])
        if each.median() >= FEWEST_MAPPINGS_WITH_INTERVAL:
            return ""
        most = int(measured.get(self.name, each).max())
        few = most < len(_FEW_MAPPINGS)
        words = _FEW_MAPPINGS[most] if few else "mostly fewer than five mappings each"
        return words if self.name in measured else f"{words} in the chapters"

    @property
    def has_few_mappings(self) -> bool:
        """Whether a point of this chapter has fewer mappings than decide."""
        own = self._mappings.get(self.name)
        return own is not None and bool(own.min() < FEWEST_MAPPINGS_WITH_INTERVAL)

    @cached_property
    def _mappings(self) -> dict[str, pd.Series]:
        """How many mappings each point of the machine has, by chapter."""
        return {
            name: row_tables.processes_per_point(rows)
            for name in notebooks.chapter_names_in_order()
            if len(rows := self.store.load(self.machine, name))
        }

    # --- what else is kept of the machine

    def counted_sessions(self) -> list[SessionCounts]:
        """Return what perf stat counted of the machine's measuring processes."""
        kept = none_if_unavailable(self.store.read_document, self.machine, SESSIONS_DOCUMENT) or {
            "sessions": []
        }
        return [SessionCounts.model_validate(one) for one in kept["sessions"]]

    def kept_quantities(self, machine: str) -> dict[str, Any]:
        """Return this chapter's quantities of a published machine or "reference", {} before its
        first refresh."""
        data = Store(ROOT / "data")  # beside the committed text, whatever is measured elsewhere
        name = data.resolve(machine, experiment=self.name)
        kept = none_if_unavailable(data.read_document, name, QUANTITIES_DOCUMENT) or {}
        return kept.get(self.name, {})

    def document(
        self,
        name: str,
        make: Callable[[str], dict[str, Any]] | None,
        whole: Callable[[dict[str, Any]], bool] = bool,
    ) -> dict[str, Any]:
        """Return <name>.json of the machine.

        About this computer, make(profile) makes it first if there is none, or one of another state,
        of other means, or not `whole`. make: None for a document that only a command makes. Raises
        Unavailable, no-data if there is no document.
        """
        if self.is_this and make:
            self._make_document(name, make, whole)
        document = self.store.read_document(self.machine, name)
        if self.is_this and not make and document.get("state") != hosts.state_digest(self.host):
            raise Unavailable("no-data", f"{name}.json is of another state of this computer")
        return {key: value for key, value in document.items() if key != "means"}

    def _make_document(
        self,
        name: str,
        make: Callable[[str], dict[str, Any]],
        whole: Callable[[dict[str, Any]], bool],
    ) -> None:
        means = self._means()
        known = none_if_unavailable(self.store.read_document, self.machine, name) or {}
        now = (hosts.state_digest(self.host), means)
        if not self._seconds or ((known.get("state"), known.get("means")) == now and whole(known)):
            return
        self._require_linux()
        if why := self._refused.get(name):
            raise why
        print(f"{name}: building and running.", file=sys.stderr)
        try:
            made = make(self.parameters["profile"]) | {"means": means}
        except Unavailable as why:
            self._refused[name] = why
            raise
        self.store.write_document(self.machine, name, made)

    @cached_property
    def _read(self) -> dict[tuple[str, str], pd.DataFrame]:
        """The rows that were read, by experiment and engine: a page asks for the same ones up to
        ten times."""
        return {}

    @cached_property
    def _others(self) -> dict[str, Chapter]:
        return {}

    @cached_property
    def _refused(self) -> dict[str, Unavailable]:
        """Why documents could not be made, by name: a page that asks again does not try again."""
        return {}

    def _means(self) -> list[str]:
        """Return what a document may lack today and have tomorrow: filled pools, programs."""
        pools = [pool.page for pool in self.host.pools if pool.total]
        return sorted([*pools, *filter(shutil.which, _TOOLS)])

    def on(self, machine: str) -> Chapter:
        """Return this chapter about another machine of `data`. Raises Unavailable("no-data")."""
        if machine in self._others:
            return self._others[machine]
        chapter = Chapter(self.name, self.parameters | {"machine": machine}, self.data)
        try:
            chapter.host  # noqa: B018  # read now
        except ValueError as error:
            raise Unavailable(
                "no-data", f"{chapter.machine} has a description of another version"
            ) from error
        self._others[machine] = chapter
        return chapter

    @cached_property
    def published(self) -> dict[str, Chapter]:
        """This page about each machine that is published beside the committed text, by the name of
        the machine ("Zen 4, EPYC guest"), in the order of all pages."""
        data = Store(ROOT / "data")  # wherever this computer's own rows are kept
        chapters = [
            chapter_of_published_machine(self.name, name) for name in data.machines_in_order()
        ]
        return {chapter.shown_name: chapter for chapter in chapters}


def _notes_of_lacks(lacking: Mapping[Point, Unavailable]) -> list[UnmeasuredNote]:
    """Return a note for each reason. It has a detail for each kind of pages: that of the largest
    point, which says what to ask for."""
    details: dict[str, dict[str, Unavailable]] = {}
    for point, why in sorted(lacking.items(), key=lambda item: kernels.arena_bytes(item[0])):
        details.setdefault(why.code, {})[point.pages] = why
    notes = []
    for code, by_pages in sorted(details.items()):
        reasons = [*by_pages.values()]
        detail = "; ".join(dict.fromkeys(why.detail for why in reasons))
        note = Unavailable(code, detail, reasons[0].remedy).note
        notes.append(note._replace(pages=tuple(by_pages)))
    return notes


def begin(chapter: str, namespace: dict[str, Any]) -> Chapter:
    """Start a chapter's notebook: `chapter = begin("stlb_cliff", globals())`, after its parameters.

    With a machine `beside`, its cells run about that machine first. Raises
    Unavailable("bad-parameter").
    """
    checked = _parameters(chapter, namespace)
    beside = None
    if checked["beside"] != "reference":
        beside = _page_about(chapter, checked | {"machine": checked["beside"]})
    machine, about = checked["machine"], Chapter(chapter, checked, Store(data_root()))
    opened = page.Page(
        chapter,
        is_reference=machine == "reference" and beside is None,
        is_this=machine == "this",
        beside=beside,
    )
    if opened.is_this and not notebooks.is_rerun(chapter):
        opened.few_mappings = about.few_mappings
        opened.has_few_mappings = about.has_few_mappings
    page.open_page(opened)
    page.name_frames()
    if not opened.is_reference:
        opened.machine = about.shown_name
        opened.base_pages = _base_pages(about.host, chapter, checked["beside"])
        about.head = CompletenessLine(
            chapter,
            opened.machine,
            beside.machine if beside else "",
            few_mappings=opened.few_mappings,
            base_page=opened.base_pages[0],
            namesake=_namesake(about) if opened.is_this else "",
        )
        opened.head = about.head
        namespace["print"] = opened.print
    return about


def _namesake(about: Chapter) -> str:
    """Return a computer's microarchitecture if a published machine is called by it, else ""."""
    core = about.host.microarchitecture
    return core if core in short_machine_names(Store(ROOT / "data")).values() else ""


def _base_pages(host: Host, chapter: str, beside: str) -> tuple[str, str]:
    """Return the sizes of base pages of a machine and of the one beside it, "" if they agree."""
    other = chapter_of_published_machine(chapter, beside).host
    sizes = host.base_page_bytes, other.base_page_bytes
    return ("", "") if sizes[0] == sizes[1] else (format_size(sizes[0]), format_size(sizes[1]))


def _page_about(chapter: str, given: dict[str, Any]) -> page.Page:
    """Return the page that a chapter's cells write about another machine, measuring and showing
    nothing: its tables and quantities. given: the parameters."""
    names: dict[str, Any] = {"__name__": "__main__"}
    page.open_page(page.Page(chapter))
    with capture_output():
        for cell in page.notebook_cells(chapter):
            if cell.kind == "code":
                place = f"{chapter}.ipynb, cell {cell.number}, about {given['machine']}"
                exec(compile(cell.source, place, "exec", dont_inherit=True), names)
                page.current_page().put = lambda shown: None  # a chart need not be drawn
            if "parameters" in cell.metadata.get("tags", ()):
                names |= given | {"beside": "reference", "minutes": 0.0}
    return page.current_page()


def _parameters(chapter: str, namespace: dict[str, Any]) -> dict[str, Any]:
    """Return the declared parameters of a notebook from its globals. Raises
    Unavailable("bad-parameter"), also for an unknown name in the cell that Papermill injected."""
    known = notebooks.declared_parameters(chapter)
    given = {name: namespace[name] for name in known if name in namespace}
    for source in namespace.get("In", []):  # IPython's list of the cells run so far
        if source.startswith("# Parameters"):  # the first line of the cell that Papermill injects
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    given[node.id] = namespace.get(node.id)
    return notebooks.check_parameters(chapter, given)


def chapter_of_published_machine(name: str, machine: str) -> Chapter:
    """Return a chapter about a published machine."""
    return Chapter(
        name, notebooks.check_parameters(name, {"machine": machine}), Store(ROOT / "data")
    )


def literature(name: str) -> pd.DataFrame:
    """Return a table of published figures from data/literature/, each row with its source."""
    return pd.read_csv(ROOT / "data" / "literature" / f"{name}.csv")
