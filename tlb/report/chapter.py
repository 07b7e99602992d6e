"""The one object that a notebook talks to: which machine it is about, its rows, and how they are
shown."""

from __future__ import annotations

import ast
import shutil
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from tlb.inference.campaigns import newest
from tlb.lab import build, campaign, grid, kernels, rows, states, survey
from tlb.lab.campaign import Outcome
from tlb.lab.grid import Profile, Scope
from tlb.lab.progress import Progress
from tlb.lab.record import Point
from tlb.lab.rig import Rig, usable_bytes
from tlb.lab.store import Store, data_root
from tlb.machine import host as hosts
from tlb.machine.host import Host, tlb_entries
from tlb.page_sizes import PAGES
from tlb.reasons import Note, Unavailable, explain, if_available
from tlb.report import card, page, parameters
from tlb.system.files import ROOT
from tlb.units import format_size, parse_size


@dataclass
class Chapter:
    """What a notebook works with: `measure` gives its rows; `show`, `say` and `verdicts` put what
    an Analysis says on the page."""

    name: str
    parameters: dict[str, Any]
    data: Store  # data/: what is published, and apart from it what was measured here
    notes: list[Note] = field(default_factory=list)  # what was lacking

    # --- which machine

    @cached_property
    def is_this(self) -> bool:
        return self.parameters["machine"] == "this"

    @cached_property
    def store(self) -> Store:
        """Where its rows are: with `machine` "this" what was measured here and nothing else,
        otherwise what is published."""
        return self.data.own if self.is_this else self.data

    @cached_property
    def machine(self) -> str:
        """The machine's id, the name of its folder in the store."""
        return (
            hosts.machine_id(self.host)
            if self.is_this
            else self.store.resolve(self.parameters["machine"], experiment=self.name)
        )

    @cached_property
    def stands_in(self) -> bool:
        """Whether it is another published machine than the reference, which lacks this chapter."""
        return self.parameters["machine"] == "reference" and self.machine != self.store.reference()

    @cached_property
    def host(self) -> Host:
        """The machine's description: inspected now, or as it was written beside its data, in the
        state of this chapter's rows."""
        if self.is_this:
            return hosts.inspect()
        host = Host.model_validate(self.store.read_machine(self.machine))
        if states.are_several(self.store, self.machine) and len(
            frame := newest(self.store.load(self.machine, self.name))
        ):
            return (
                if_available(
                    states.described, self.store, self.machine, str(frame["state"].mode()[0])
                )
                or host
            )
        return host

    def described(self, state: str) -> Host:
        """The machine as it was in the state that a row names. Raises Unavailable("no-data") where
        nothing says."""
        return (
            self.host
            if state == hosts.state(self.host)
            else states.described(self.store, self.machine, state)
        )

    @cached_property
    def profile(self) -> Profile:
        """The profile with this run's overrides. For committed data all of it is shown unless
        max_working_set is given."""
        base = grid.profile(self.parameters["profile"])
        changes: dict[str, int] = {}
        usable = (
            max(usable_bytes(self.host, kind) for kind in PAGES) if self.is_this else sys.maxsize
        )
        if self.parameters["repeats"]:
            changes["repeats"] = self.parameters["repeats"]
        if self.parameters["max_working_set"] != "profile":
            most = changes["max_working_set"] = parse_size(self.parameters["max_working_set"])
            if most > usable:
                raise Unavailable(
                    "bad-parameter",
                    f"max_working_set {format_size(most)} is more than the {format_size(usable)} "
                    "that may be measured here, half of the memory that is free or what a pool holds",
                )
        elif not self.is_this:
            changes["max_working_set"] = sys.maxsize
        elif base.max_working_set > usable:
            changes["max_working_set"] = usable
            self._note(
                Note(
                    f"The sweep ends at {format_size(usable)}, half of the memory that is free here or what a pool holds."
                )
            )
        return base.model_copy(update=changes)

    @cached_property
    def engine(self) -> str:
        """The engine of its points where they name none."""
        return build.engine_for(self.parameters["engine"]) if self.is_this else "c"

    @cached_property
    def scope(self) -> Scope:
        """What the chapter's grid may ask for."""
        profile = self.profile if self.is_this else grid.profile(self.parameters["profile"])
        return Scope(
            profile,
            self.engine,
            tuple(tlb_entries(self.host)),
            len(self.host.usable_cpus),
            base_page_bytes=self.host.base_page_bytes,
        )

    @property
    def _seconds(self) -> float:
        """As long as it may measure."""
        return 60 * self.parameters["minutes"]

    # --- its rows

    @cached_property
    def rig(self) -> Rig:
        """This computer, inspected and probed once. Raises Unavailable("not-linux")."""
        if self.host.os != "Linux":
            raise Unavailable("not-linux")
        if self.parameters["engine"] == "auto" and build.engine_for("auto") == "numba":
            self._note(Note("The numba engine serves: " + explain("no-compiler"), "no-compiler"))
        rig = Rig.of(self.host, self.store, self.machine)
        if reason := rig.plan.lacking.get("core_cycles"):
            self._note(Note("Timing only, no hardware counters: " + explain(reason), reason))
        states.describe(self.store, self.machine, self.host)
        return rig

    def measure(self, points: Sequence[Point], name: str = "") -> pd.DataFrame:
        """One row a record of an experiment, by default this chapter's, by the engines that
        `points` name; with `machine` "this", what is not there yet is measured first. Raises
        Unavailable, no-data where there is nothing."""
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
        compared: Callable[[Point], bool] = lambda point: True,
        first_round: bool = False,
        progress: Progress | None = None,
    ) -> Outcome:
        """Measure what is missing of these grids, as many mappings a point as the profile has, up
        to nine where intervals are wide; note what is lacking, and what there was no time for,
        unless this is but the first round. Else as campaign.run."""
        repeats = self.profile.repeats
        outcome = campaign.run(
            self.rig,
            grids,
            repeats,
            most=campaign.most(repeats),
            seconds=seconds,
            compared=compared,
            first_round=first_round,
            progress=progress,
        )
        if seconds:
            print(f"{', '.join(grids)}: {outcome}.", file=sys.stderr)
        # Of all the points that lack the same on the same pages, the largest says what to ask for.
        largest = {
            (point.pages, why.code): why
            for point, why in sorted(
                outcome.lacking.items(), key=lambda item: kernels.arena_bytes(item[0])
            )
        }
        for note in sorted({why.note for why in largest.values()}):
            self._note(note)
        if outcome.skipped and not first_round:
            every = outcome.skipped + outcome.cached + outcome.measured
            self._note(
                Unavailable(
                    "no-time",
                    f"{outcome.skipped} of {every} measurements of {', '.join(grids)} were left out",
                ).note
            )
        self._write_card(outcome.measured)
        return outcome

    def patch(self, kernel: str, old: str, new: str) -> None:
        """Change a C kernel for what this notebook measures from now on: `new` in the place of
        `old`, which stands in it exactly once. kernels/ stays as it is, and the rows are the
        changed kernel's own. Raises Unavailable("bad-parameter")."""
        build.patch(kernel, old, new)

    def survey(self, first: Sequence[Point] = ()) -> pd.DataFrame:
        """The rows of the geometry of 4 KiB pages, measured first with `machine` "this". first: the
        points to begin with, where not those of `survey.coarse`. Raises Unavailable."""
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
        """The rows of an experiment that are there already: of the computer as it is now, or of a
        published machine's last campaign; of a kernel's two engines one. Raises
        Unavailable("no-data")."""
        return self._rows(name, ())

    def _rows(self, name: str, points: Sequence[Point]) -> pd.DataFrame:
        """points: those asked for. What is published of a kernel may be of the other engine and of
        another profile."""
        asked = {(point.kernel, point.engine) for point in points}
        frame = self.store.load(self.machine, name)
        frame = rows.current(frame, hosts.state(self.host)) if self.is_this else newest(frame)
        if not self.is_this:
            asked &= {*zip(frame["kernel"], frame["engine"], strict=True)}
        regions = {(point.kernel, point.region_ms) for point in points}
        frame = rows.of_one_region(
            rows.of_one_engine(frame, asked, self.engine), regions, is_strict=self.is_this
        )
        if frame.empty:
            raise Unavailable("no-data", f"{name} on {self.machine}")
        return kernels.with_defaults(frame)

    def document(
        self,
        name: str,
        make: Callable[[str], dict[str, Any]] | None,
        whole: Callable[[dict[str, Any]], bool] = bool,
    ) -> dict[str, Any]:
        """<name>.json of the machine. With `machine` "this", make(profile) makes it first where
        there is none, or one of another state of the machine or of other means, or that is not
        `whole`; None for what a command makes on request alone. Raises Unavailable, no-data where
        there is nothing."""
        if self.is_this and make is None:
            if self.store.read_document(self.machine, name).get("state") != hosts.state(self.host):
                raise Unavailable("no-data", f"{name}.json is of another state of this computer")
        elif self.is_this:
            now, means = hosts.state(self.host), self._means()
            try:
                known = self.store.read_document(self.machine, name)
            except Unavailable:
                known = {}
            if self._seconds and (
                (known.get("state"), known.get("means")) != (now, means) or not whole(known)
            ):
                if self.host.os != "Linux":
                    raise Unavailable("not-linux")
                print(f"{name}: building and running, which takes minutes.", file=sys.stderr)
                self.store.write_document(
                    self.machine, name, make(self.parameters["profile"]) | {"means": means}
                )
        return {
            key: value
            for key, value in self.store.read_document(self.machine, name).items()
            if key != "means"
        }

    def reference(self) -> Chapter:
        """This chapter about the reference machine, of which nothing is measured. Raises
        Unavailable("no-data") without one."""
        chapter = Chapter(self.name, self.parameters | {"machine": "reference"}, self.data)
        try:
            chapter.host  # noqa: B018  # read now
        except ValueError as error:
            raise Unavailable(
                "no-data", f"{chapter.machine} has a description of another version"
            ) from error
        return chapter

    def _means(self) -> list[str]:
        """What a document may lack today and have tomorrow: pools with pages in them, programs."""
        pools = [pool.page for pool in self.host.pools if pool.total]
        return sorted(
            [
                *pools,
                *(
                    tool
                    for tool in ("cc", "go", "java", "javac", "mvn", "rustc")
                    if shutil.which(tool)
                ),
            ]
        )

    def _note(self, note: Note) -> None:
        """A lack, said once: on stderr as it is found, and on the page. A run that may not measure
        finds none."""
        if note not in self.notes:
            self.notes.append(note)
            if self._seconds:
                print(note.text, file=sys.stderr)

    def _write_card(self, measured: int) -> None:
        if measured:
            card.write(self.store, self.machine, self.host)


def begin(chapter: str, namespace: dict[str, Any]) -> Chapter:
    """Start a chapter's notebook: `chapter = begin("stlb_cliff", globals())`, after its parameters.

    Reads the declared parameters from `namespace`; an unknown one in the cell that Papermill
    injected is an error.
    """
    given = {name: namespace[name] for name in parameters.declared(chapter) if name in namespace}
    for source in namespace.get("In", []):  # IPython's list of the cells run so far
        if source.startswith("# Parameters"):  # the first line of the cell that Papermill injects
            injected = [
                t.id
                for node in ast.parse(source).body
                if isinstance(node, ast.Assign)
                for t in node.targets
                if isinstance(t, ast.Name)
            ]
            given |= {name: namespace.get(name) for name in injected}
    namespace[page.PAGE] = page.Page(chapter)
    return Chapter(chapter, parameters.check(chapter, given), Store(data_root()))


def literature(name: str) -> pd.DataFrame:
    """A table of published figures from data/literature/, each row with its source."""
    return pd.read_csv(ROOT / "data" / "literature" / f"{name}.csv")
