"""The object that a notebook talks to: which machine it is about, and its rows."""

from __future__ import annotations

import ast
import shutil
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import pandas as pd

from tlb.machine import host as hosts
from tlb.measure import build, campaign, kernels, row_selection, states, survey
from tlb.measure.campaign import Outcome
from tlb.measure.measuring_setup import Rig
from tlb.measure.progress import Progress
from tlb.measure.record import Point
from tlb.measure.store import Store, data_root
from tlb.report import card, lacking, page, parameters, verdicts
from tlb.report.subject import Subject
from tlb.stats.campaigns import newest
from tlb.system.files import ROOT
from tlb.system.reasons import Note, Unavailable, explain, if_available

_TOOLS = ("cc", "go", "java", "javac", "mvn", "rustc")  # with which documents are made


class Chapter(Subject):
    """A chapter about one machine: its rows and documents, measured first about this computer."""

    # --- its rows

    @cached_property
    def rig(self) -> Rig:
        """This computer, inspected and probed once. Raises Unavailable("not-linux")."""
        self._require_linux()
        if self.parameters["engine"] == "auto" and build.engine_for("auto") == "numba":
            self._note(Note("The numba engine serves: " + explain("no-compiler"), "no-compiler"))
        rig = Rig.of(self.host, self.store, self.machine)
        if reason := rig.plan.lacking.get("core_cycles"):
            self._note(Note("Timing only, no hardware counters: " + explain(reason), reason))
        states.write_description(self.store, self.machine, self.host)
        return rig

    def _require_linux(self) -> None:
        if self.host.os != "Linux":
            raise Unavailable("not-linux")

    def measure(self, points: Sequence[Point], name: str = "") -> pd.DataFrame:
        """Return the rows of an experiment, by default this chapter's, by the engines of `points`.

        About this computer, points without rows are measured first. Raises Unavailable, no-data if
        there are no rows.
        """
        name = name or self.name
        if self.is_this:
            self.campaign({name: points}, seconds=self._seconds)
        frame = self._rows(name, points)
        return frame[kernels.is_within(frame, self.profile.max_working_set)].reset_index(drop=True)

    def campaign(
        self,
        grids: Mapping[str, Collection[Point]],
        *,
        seconds: float,
        first_round: bool = False,
        progress: Progress | None = None,
    ) -> Outcome:
        """Measure what is missing of these grids (`campaign.run` has the arguments).

        A point that a claim compares gets the profile's `repeats`, and up to nine if its interval
        is wide; any other gets `shape_repeats`.
        Notes say what was lacking and, unless it is the first round, what there was no time for.
        """
        profile, compared = self.profile, verdicts.compared(self.scope)
        outcome = campaign.run(
            self.rig,
            grids,
            lambda point: profile.repeats if compared(point) else profile.shape_repeats,
            most=campaign.most_mappings(profile.repeats),
            seconds=seconds,
            compared=compared,
            first_round=first_round,
            progress=progress,
        )
        names = ", ".join(grids)
        if seconds:
            print(f"{names}: {outcome}.", file=sys.stderr)
        lacking = sorted(outcome.lacking.items(), key=lambda item: kernels.arena_bytes(item[0]))
        # Of all points that lack the same on the same pages, the largest says what to ask for.
        largest = {(point.pages, why.code): why.note for point, why in lacking}
        for note in sorted({*largest.values()}):
            self._note(note)
        if outcome.skipped and not first_round:
            every = outcome.skipped + outcome.cached + outcome.measured
            self.left_out[names] = outcome.skipped, every
            left_out = f"{outcome.skipped} of {every} measurements of {names} were left out"
            self._note(Unavailable("no-time", left_out).note)
        self._write_card(outcome.measured)
        return outcome

    def survey(self, first: Sequence[Point] = ()) -> pd.DataFrame:
        """Return the rows of the geometry of 4 KiB pages, measured first about this computer.

        first: the points to begin with, by default `survey.coarse`. Raises Unavailable.
        """
        if self.is_this:
            before = len(self.store.keys(self.rig.machine, survey.NAME))
            _, lacking = survey.measured(
                self.rig,
                "4k",
                repeats=self.profile.repeats,
                most_bytes=self.profile.max_working_set,
                first=first,
                seconds=self._seconds,
            )
            self._write_card(len(self.store.keys(self.machine, survey.NAME)) - before)
            for note in lacking:
                self._note(note)
        return self.kept(survey.NAME)

    def kept(self, name: str) -> pd.DataFrame:
        """Return the rows of an experiment that exist: of this computer's present state, or of a
        published machine's last campaign. Raises Unavailable("no-data")."""
        if self.is_this and self._seconds:  # there may be more by the next time
            return self._rows(name, ())
        if name not in self._read:
            self._read[name] = self._rows(name, ())
        return self._read[name]

    def _rows(self, name: str, points: Sequence[Point]) -> pd.DataFrame:
        """Published rows of `points` may be of the other engine and of another profile."""
        asked = {(point.kernel, point.engine) for point in points}
        frame = self.store.load(self.machine, name)
        if self.is_this:
            frame = row_selection.current_rows(frame, hosts.state(self.host))
        else:
            frame = newest(frame)
            asked &= {*zip(frame["kernel"], frame["engine"], strict=True)}
        regions = {(point.kernel, point.region_ms) for point in points}
        frame = row_selection.rows_of_one_engine(frame, asked, self.engine)
        frame = row_selection.rows_of_one_profile(frame, regions, is_strict=self.is_this)
        if frame.empty:
            raise Unavailable("no-data", f"{name} on {self.machine}")
        return kernels.with_defaults(frame)

    # --- what else is kept of the machine

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
        if self.is_this and not make and document.get("state") != hosts.state(self.host):
            raise Unavailable("no-data", f"{name}.json is of another state of this computer")
        return {key: value for key, value in document.items() if key != "means"}

    def _make_document(
        self,
        name: str,
        make: Callable[[str], dict[str, Any]],
        whole: Callable[[dict[str, Any]], bool],
    ) -> None:
        means = self._means()
        known = if_available(self.store.read_document, self.machine, name) or {}
        now = (hosts.state(self.host), means)
        if not self._seconds or ((known.get("state"), known.get("means")) == now and whole(known)):
            return
        self._require_linux()
        if why := self._refused.get(name):
            raise why
        print(f"{name}: building and running, which takes minutes.", file=sys.stderr)
        try:
            made = make(self.parameters["profile"]) | {"means": means}
        except Unavailable as why:
            self._refused[name] = why
            raise
        self.store.write_document(self.machine, name, made)

    @cached_property
    def _read(self) -> dict[str, pd.DataFrame]:
        """The rows that were read, by experiment: a page asks for the same ones up to ten times."""
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

    def _write_card(self, measured: int) -> None:
        if measured:
            card.write(self.store, self.machine, self.host)


def begin(chapter: str, namespace: dict[str, Any]) -> Chapter:
    """Start a chapter's notebook: `chapter = begin("stlb_cliff", globals())`, after its parameters.

    Reads the declared parameters from `namespace`. Raises Unavailable("bad-parameter"), also for an
    unknown name in the cell that Papermill injected.
    """
    known = parameters.declared(chapter)
    given = {name: namespace[name] for name in known if name in namespace}
    for source in namespace.get("In", []):  # IPython's list of the cells run so far
        if source.startswith("# Parameters"):  # the first line of the cell that Papermill injects
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    given[node.id] = namespace.get(node.id)
    checked = parameters.check(chapter, given)
    namespace[page.PAGE] = shown = page.Page(chapter)
    if checked["machine"] != "reference":  # whose committed pages say in their texts what it lacks
        minutes = known["minutes"][1]
        shown.box = lacking.box_here(
            f"`.venv/bin/tlb run {chapter}` measures this chapter here, in at most {minutes:g} minutes."
        )
    return Chapter(chapter, checked, Store(data_root()))


def published(name: str, machine: str) -> Chapter:
    """Return a chapter about a published machine."""
    return Chapter(name, parameters.check(name, {"machine": machine}), Store(ROOT / "data"))


def literature(name: str) -> pd.DataFrame:
    """Return a table of published figures from data/literature/, each row with its source."""
    return pd.read_csv(ROOT / "data" / "literature" / f"{name}.csv")
