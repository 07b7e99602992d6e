"""The chapters: their parameters, checked; the one object a notebook talks to; and Papermill over the table of contents."""

from __future__ import annotations

import ast
import json
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import yaml
from IPython.display import Markdown
from myst_nb import glue

from experiments.article import card as cards
from experiments.article import machine_words as findings
from experiments.chapters.hugepages.languages import jmh, runtimes
from experiments.inference import geometry
from experiments.inference import intervals as stats
from experiments.lab import build, measure, perf, survey
from experiments.lab import campaign as experiment
from experiments.lab.grid import GRIDS
from experiments.lab.store import MACHINE, Store, data_root
from experiments.machine import host, pmu
from experiments.system.files import disk_errors
from experiments.words.reasons import Unavailable, explain
from experiments.words.units import format_size, parse_size

ROOT = build.ROOT
BOOK = ROOT / "book"
TYPES: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool}
_KINDS = {str: "a text", int: "a whole number", float: "a number with a decimal point", bool: "True or False"}


def _runtimes(profile: str) -> dict[str, Any]:
    small = profile == "smoke"
    return runtimes.survey((16 if small else 256) << 20, repeats=1 if small else 3).model_dump(mode="json")


def _jmh(profile: str) -> dict[str, Any]:
    return jmh.survey(jmh.SIZES[:1] if profile == "smoke" else jmh.SIZES, quick=profile != "full").model_dump(mode="json")


# What data/ holds beside rows: how each is made, by profile.
DOCUMENTS: dict[str, Callable[[str], dict[str, Any]]] = {"runtimes": _runtimes, "jmh": _jmh}


def table_of_contents() -> list[str]:
    """The chapters' names in reading order, from _toc.yml: the notebooks among its files."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    parts = toc.get("parts") or [{"chapters": toc.get("chapters", [])}]
    files = [toc["root"]] + [entry["file"] for part in parts for entry in part["chapters"]]
    return [Path(name).name for name in files if (ROOT / f"{name}.ipynb").exists()]


def declared_parameters(chapter: str) -> dict[str, tuple[type, Any]]:
    """name -> (type, default) of a chapter, from its cell tagged `parameters`. Raises Unavailable("bad-parameter")."""
    path = BOOK / f"{chapter}.ipynb"
    if chapter not in table_of_contents():
        raise Unavailable("bad-parameter", f"there is no chapter '{chapter}'; there are {', '.join(table_of_contents())}")
    cells = json.loads(path.read_text())["cells"]
    tagged = [c for c in cells if "parameters" in c["metadata"].get("tags", [])]
    tree = ast.parse("".join(tagged[0]["source"])) if tagged else ast.Module([], [])
    return {
        node.target.id: (TYPES[ast.unparse(node.annotation)], ast.literal_eval(node.value))
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None
    }


def check_parameters(chapter: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The chapter's parameters with `given` over the defaults, each of its declared type and meaning.

    Raises Unavailable("bad-parameter") in one sentence: Papermill itself only warns of an unknown name.
    """
    declared = declared_parameters(chapter)
    for name, value in given.items():
        if name not in declared:
            raise Unavailable("bad-parameter", f"{chapter} has no parameter '{name}'; it has {', '.join(declared)}")
        if type(value) is not declared[name][0]:
            raise Unavailable("bad-parameter", f"{name} is {_KINDS[declared[name][0]]}, not {value!r}")
    values = {name: default for name, (_, default) in declared.items()} | dict(given)
    experiment.profile(values["profile"])
    if values["engine"] not in ("auto", "c", "numba"):
        raise Unavailable("bad-parameter", f"engine is auto, c or numba, not '{values['engine']}'")
    most = experiment.MOST_REPEATS
    if not 0 <= values["repeats"] <= most:
        raise Unavailable("bad-parameter", f"repeats is 0 (as the profile says) or up to {most}, not {values['repeats']}")
    if not MACHINE.fullmatch(values["machine"]):
        raise Unavailable("bad-parameter", f"machine is this, reference or a name in data/, not {values['machine'][:80]!r}")
    if values["max_working_set"] != "profile":
        try:
            size = parse_size(values["max_working_set"])
        except ValueError as error:
            raise Unavailable("bad-parameter", f"max_working_set: {error}") from None
        if size < (least := experiment.SMALLEST_LINES * experiment.BASE_PAGE):
            raise Unavailable("bad-parameter", f"max_working_set is at least {format_size(least)}, not {format_size(size)}")
    return values


@dataclass
class Chapter:
    """What a notebook works with: which machine it is about, and `measure`, which gives its rows."""

    name: str
    parameters: dict[str, Any]
    store: Store
    notes: list[str] = field(default_factory=list)  # one sentence each: what was lacking

    @cached_property
    def is_this(self) -> bool:
        return self.parameters["machine"] == "this"

    @cached_property
    def machine(self) -> str:
        """The id under data/."""
        return host.machine_id(self.host) if self.is_this else self.store.resolve(self.parameters["machine"])

    @cached_property
    def host(self) -> host.Host:
        """The machine's description: inspected now, or as it was written beside its data."""
        if self.is_this:
            return host.inspect()
        return host.Host.model_validate(self.store.read_machine(self.store.resolve(self.parameters["machine"])))

    def measure(self, name: str) -> pd.DataFrame:
        """One row a record of experiment `name`, newest kernel and machine state only; with `machine` "this", what is
        not yet in data/ is measured first. Raises Unavailable, no-data where there is nothing."""
        most = self.profile.max_working_set
        if self.is_this:
            self._measure_missing(name)
        if name == survey.NAME:  # whose aliased pages span far more than they occupy
            most = sys.maxsize
        frame = self.store.load(self.machine, name)
        if frame.empty:
            raise Unavailable("no-data", f"{name} on {self.machine}")
        frame = stats.newest(frame)
        # A packed control belongs to its spread points; an array has its own size.
        is_chase = frame["kernel"].isin(["page_chase", "page_gather", "guest_chase", "numa_chase"])
        kept = frame[(frame["lines"] * frame["stride_bytes"]).where(is_chase, frame["working_set_bytes"]) <= most]
        return kept.reset_index(drop=True)

    @cached_property
    def profile(self) -> experiment.Profile:
        """The profile with this run's overrides. For committed data all of it is shown unless max_working_set is given."""
        base = experiment.profile(self.parameters["profile"])
        changes: dict[str, int] = {}
        usable = int(self.host.memory.usable_bytes * experiment.MEMORY_SHARE) if self.is_this else sys.maxsize
        if self.parameters["repeats"]:
            changes["repeats"] = changes["large_repeats"] = self.parameters["repeats"]
        if self.parameters["max_working_set"] != "profile":
            most = changes["max_working_set"] = parse_size(self.parameters["max_working_set"])
            if most > usable:
                raise Unavailable("bad-parameter", f"max_working_set {format_size(most)} is more than the {format_size(usable)} "
                                  "that may be measured here, half of the memory that is free")
        elif not self.is_this:
            changes["max_working_set"] = sys.maxsize
        elif base.max_working_set > usable:
            changes["max_working_set"] = usable
            self.notes.append(f"The sweep ends at {format_size(usable)}, half of the memory that is free here.")
        return base.model_copy(update=changes)

    def tlb_entries(self) -> list[int]:
        """4 KiB data entries of each TLB level as CPUID states them, ascending; empty where it is silent."""
        return [tlb.entries for tlb in findings.data_tlbs(self.host)]

    def geometry(self) -> tuple[pd.DataFrame, geometry.Geometry]:
        """The rows of the survey of 4 KiB pages and what they say. Raises Unavailable, as `measure` and `geometry.infer` do."""
        frame = self.measure(survey.NAME)
        return frame, geometry.infer(frame, self.tlb_entries(), survey.cache_bytes(self.host))

    def document(self, name: str) -> dict[str, Any]:
        """data/<machine>/<name>.json: `runtimes` or `jmh`. With `machine` "this" it is made first where there is none, or one
        of another state of the machine or of other means. Raises Unavailable, no-data where there is nothing."""
        if self.is_this:
            now, means = host.state(self.host), self._means()
            try:
                known = self.store.read_document(self.machine, name)
            except Unavailable:
                known = {}
            if (known.get("state"), known.get("means")) != (now, means):
                if self.host.os != "Linux":
                    raise Unavailable("not-linux")
                print(f"{name}: building and running; this takes a minute or two.", file=sys.stderr)
                made = DOCUMENTS[name](self.parameters["profile"])
                self.store.write_document(self.machine, name, made | {"means": means})
        return {key: value for key, value in self.store.read_document(self.machine, name).items() if key != "means"}

    def _means(self) -> list[str]:
        """What a document may lack today and have tomorrow: pools with pages in them, programs."""
        pools = [pool.page for pool in self.host.pools if pool.total]
        return sorted([*pools, *(tool for tool in ("cc", "go", "java", "javac", "mvn", "rustc") if shutil.which(tool))])

    def say(self, said: Mapping[str, float | str]) -> None:
        """Glue numbers (as Python floats: numpy's render empty under a format) and sentences for the text around."""
        for name, value in said.items():
            shown = Markdown(value) if isinstance(value, findings.Prose) else value if isinstance(value, str) else float(value)
            glue(name, shown, display=False)

    def _measure_missing(self, name: str) -> None:
        if self.host.os != "Linux":
            raise Unavailable("not-linux")
        engine = build.engine_for(self.parameters["engine"])
        if engine == "numba" and self.parameters["engine"] == "auto":
            self.notes.append("The numba engine serves: " + explain("no-compiler"))
        cpu = pmu.performance_cpu(self.host.usable_cpus)
        plan = perf.plan(self.host.microarchitecture, cpu=cpu)
        if reason := plan.lacking.get("core_cycles"):
            self.notes.append("Timing only, no hardware counters: " + explain(reason))
        self.store.write_machine(self.machine, self.host.model_dump(mode="json"))
        for note in self.notes:
            print(note, file=sys.stderr)
        if name == survey.NAME:
            before = len(self.store.keys(self.machine, name))
            _, lacking = survey.here(self.host, "4k", self.store, self.machine, repeats=self.profile.repeats,
                                     most_bytes=self.profile.max_working_set)
            self._write_card(len(self.store.keys(self.machine, name)) - before)
            self.notes += lacking
            return
        points = GRIDS[name](self.profile, engine, self.tlb_entries(), len(self.host.usable_cpus))
        outcome = experiment.run(
            name, points, self.profile.repeats_of, machine=self.machine, store=self.store, state=host.state(self.host), plan=plan,
            usable_bytes=int(self.host.memory.usable_bytes * experiment.MEMORY_SHARE), cpu=cpu)
        print(f"{name}: {outcome}.", file=sys.stderr)
        self._write_card(outcome.measured)
        # Of all the points that lack the same on the same pages, the largest says what to ask for.
        largest = {(point.pages, why.code): why for point, why in
                   sorted(outcome.lacking.items(), key=lambda item: measure.arena_bytes(item[0]))}
        self.notes += sorted({str(why) for why in largest.values()})

    def _write_card(self, measured: int) -> None:
        if measured:
            card = (self.store.root / self.machine / "README.md")
            with disk_errors(card):
                card.write_text(cards.card(self.store, self.machine, self.host, sorted([*GRIDS, survey.NAME])))


def begin(chapter: str, namespace: Mapping[str, Any]) -> Chapter:
    """Start a chapter's notebook: `chapter = begin("stlb_cliff", globals())`, after its parameters.

    Reads the declared parameters from `namespace`; an unknown one in the cell that Papermill injected is an error.
    """
    declared = declared_parameters(chapter)
    given = {name: namespace[name] for name in declared if name in namespace}
    for source in namespace.get("In", []):  # IPython's list of the cells run so far
        if source.startswith("# Parameters"):  # the first line of the cell that Papermill injects
            injected = [t.id for node in ast.parse(source).body if isinstance(node, ast.Assign) for t in node.targets
                        if isinstance(t, ast.Name)]
            given |= {name: namespace.get(name) for name in injected}
    return Chapter(chapter, check_parameters(chapter, given), Store(data_root()))


def literature(name: str) -> pd.DataFrame:
    """A table of published figures from data/literature/, each row with its source."""
    return pd.read_csv(ROOT / "data" / "literature" / f"{name}.csv")


def execute(chapter: str, output: Path, parameters: Mapping[str, Any]) -> None:
    """Run a chapter through Papermill in its own folder. Raises Unavailable for a bad parameter and for what the chapter
    itself raised; progress goes to stderr."""
    import papermill  # half a second, which `tlb inspect` need not pay

    check_parameters(chapter, parameters)
    try:
        with disk_errors(output):
            output.parent.mkdir(parents=True, exist_ok=True)
            papermill.execute_notebook(BOOK / f"{chapter}.ipynb", output, dict(parameters), cwd=BOOK, progress_bar=False,
                                       stderr_file=sys.stderr, kernel_name="python3",
                                       extra_arguments=["--IPKernelApp.log_level=50"])
    except papermill.PapermillExecutionError as error:
        if error.ename == "Unavailable" and error.evalue:
            raise SystemExit(error.evalue) from None
        raise


def book(profile: str, parameters: Mapping[str, Any], machine: str = "this") -> Path:
    """Execute every chapter about `machine` and build the site of it; the path of its first page."""
    from experiments.article.publish import build_site

    chapters = table_of_contents()
    for name in chapters:  # all of them before the first minute is spent
        check_parameters(name, {"machine": machine, "profile": profile, **parameters})
    place = ROOT / "_build" / (machine if machine != "this" else host.machine_id(host.inspect()))
    source = place / "source"
    with disk_errors(source):
        shutil.rmtree(source, ignore_errors=True)
        shutil.copytree(BOOK, source / "book", ignore=shutil.ignore_patterns("*.ipynb", ".ipynb_checkpoints", "__pycache__"))
        for name in ("_config.yml", "_toc.yml"):
            shutil.copy(ROOT / name, source / name)
    for name in chapters:
        execute(name, source / "book" / f"{name}.ipynb", {"machine": machine, "profile": profile, **parameters})
        _hide_injected(source / "book" / f"{name}.ipynb")
    return build_site(source, place / "site")


def _hide_injected(path: Path) -> None:
    """The cell that Papermill adds is for whoever opens the notebook; the article does without it."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if "injected-parameters" in cell.metadata.get("tags", []):
            cell.metadata["tags"] += ["remove-cell"]
    nbformat.write(notebook, path)
