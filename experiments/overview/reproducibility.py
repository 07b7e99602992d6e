"""The page about doing it again: what was measured where, by which kernels and how long; and what a
second run has to show."""

from __future__ import annotations

import hashlib
import re
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from experiments import your_program
from experiments.overview import CHAPTERS
from experiments.overview.compare import CANNOT_TELL, DIFFERS, NO_DIFFERENCE
from experiments.overview.machine_pairs import largest_run_ratios
from experiments.overview.machine_verdicts import chapter_name
from tlb.machine import host as hosts
from tlb.measure import survey
from tlb.report import analysis, discovery
from tlb.report.card import point_columns, processes
from tlb.report.chapter import Chapter
from tlb.report.render import Html, data_table
from tlb.report.setting import hypervisor_name
from tlb.system.files import ROOT
from tlb.system.reasons import Unavailable, if_available, required

# What numbers pass through; the rest of requirements.lock builds the page around them.
LIBRARIES = (
    "numpy",
    "pandas",
    "scipy",
    "numba",
    "altair",
    "papermill",
    "nbval",
    "jupyter-book",
    "sphinxcontrib-bibtex",
)
# No two processes have all of these.
_PROCESS = ["kernel", "engine", "repeat", "checksum", "started_at", "ns_per_access", "wall_ns"]


class Analysis(analysis.Analysis):
    """Each chapter's rows as they are kept; nothing is measured here."""

    chapter = "reproducibility"

    def __init__(self, chapter: Chapter, names: dict[str, Any] | None = None):
        super().__init__(pd.DataFrame(), chapter, names)
        given = {**chapter.parameters, "minutes": 0.0}
        every = (name for name in map(chapter_name, CHAPTERS) if name != chapter_name(your_program))
        self._chapters = {name: Chapter(name, given, chapter.data) for name in every}
        # What `tlb geometry` measures, which the chapter about the cliff shows too.
        self._chapters[survey.NAME] = Chapter("stlb_cliff", given, chapter.data)

    @cached_property
    def kept(self) -> dict[str, tuple[Chapter, pd.DataFrame]]:
        """Return the chapters that have rows, with the rows that the chapter's page shows."""
        found = {}
        for name, chapter in self._chapters.items():
            if (rows := if_available(_rows, name, chapter)) is not None:
                found[name] = (chapter, rows)
        return found

    @property
    def rows(self) -> pd.DataFrame:
        """Return the rows behind all chapters, each once. Raises Unavailable("no-data")."""
        frames = [rows[_PROCESS].assign(machine=c.machine) for c, rows in self.kept.values()]
        return pd.concat(required(frames, "any chapter", "no-data")).drop_duplicates()

    def between_runs(self) -> pd.Series:
        """Return by which factor the medians of a point's runs differ, of this machine's points
        that have several."""
        own = self.about.machine
        frames = [rows for chapter, rows in self.kept.values() if chapter.machine == own]
        if not frames:
            return pd.Series(dtype=float)
        rows = pd.concat(frames, ignore_index=True)
        by = point_columns(rows)
        return largest_run_ratios(rows[[*by, "ns_per_access", "started_at"]], by, "ns_per_access")

    @cached_property
    def _second_run(self) -> pd.DataFrame:
        """Return data/second_run/<machine>.parquet, which data/README.md explains. Raises
        Unavailable("no-data")."""
        path = self.about.store.root / "second_run" / f"{self.about.machine}.parquet"
        if not path.is_file():
            raise Unavailable("no-data", f"{self.about.machine} has no second run")
        return pd.read_parquet(path)

    @property
    def second_run(self) -> pd.DataFrame:
        """Return a row a time that was measured in a second run too: its chapter, its `ratio`
        (second over first), the verdict of `tlb compare` and the `date`. Raises
        Unavailable("no-data")."""
        return self._second_run[self._second_run["claim"].isna()]

    def judged_again(self) -> pd.DataFrame:
        """Return the claims that an interval decides in both runs: chapter, claim, and the two
        verdicts. Raises Unavailable("no-data")."""
        claims = self._second_run[self._second_run["claim"].notna()]
        return claims.rename(columns={"first_verdict": "first", "second_verdict": "second"})

    def by_chapter(self) -> pd.DataFrame:
        """Return a row a chapter: its machine, how many points and measurements, the minutes that
        these took, a digest of its rows."""
        found = []
        for name, (chapter, rows) in self.kept.items():
            row = {
                "chapter": name.replace("_", " "),
                "machine": chapter.machine,
                "points": len(processes(rows)),
                "measurements": len(rows),
                "minutes": rows["wall_ns"].sum() / 6e10,
                "measured from": rows["started_at"].min()[:10],
                "rows": _digest(rows),
            }
            found.append(row)
        return pd.DataFrame(found)

    def by_kernel(self) -> pd.DataFrame:
        """Return a row a kernel, engine and version of what it measures: the digest of its source,
        and which chapters have rows of it."""
        by = ["kernel", "engine", "measures", "digest"]
        frames = [pd.DataFrame(columns=[*by, "chapters"])]
        for name, (_, rows) in self.kept.items():
            own = rows.rename(columns={"source": "digest"})[by].drop_duplicates().sort_values(by)
            frames.append(own.assign(chapters=name.replace("_", " ")))
        found = pd.concat(frames[1:] or frames, ignore_index=True)
        return found.groupby(by, as_index=False).agg({"chapters": ", ".join})

    def by_machine(self) -> pd.DataFrame:
        """Return a row a machine that has rows here: its CPU, its Linux, who translates for it, its
        compiler, and its state."""
        found = []
        for name, host in {c.machine: c.host for c, _ in self.kept.values()}.items():
            row = {"machine": name, "processor": f"{host.cpu_model} ({host.microarchitecture})"}
            known = {"none": "bare metal", "unknown": "bare metal or a guest"}
            guest = known.get(host.hypervisor, f"guest, {hypervisor_name(host)}")
            row |= {"system": f"{host.os} {host.kernel_release}", "virtualization": guest}
            compiler = (host.c_compiler or "none").rpartition(" ")[2]
            found.append(row | {"compiler": compiler, "state": hosts.state(host)})
        return pd.DataFrame(found)


def _rows(name: str, chapter: Chapter) -> pd.DataFrame:
    """The rows that a chapter's page shows. Raises Unavailable."""
    if name == survey.NAME:
        return chapter.kept(survey.NAME)
    return chapter.measure(discovery.load(name).grid.points(chapter.scope))


def _digest(frame: pd.DataFrame) -> str:
    """12 hex digits that any other rows, in any order, would change: of each row's checksum, time
    and beginning."""
    lines = sorted(
        f"{row.kernel} {row.checksum} {row.ns_per_access!r} {row.started_at}"
        for row in frame.itertuples()
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def locked() -> dict[str, str]:
    """Return the versions of LIBRARIES in requirements.lock by name."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    every = dict(re.findall(r"(?m)^([a-z0-9-]+)==([^\s;]+)", lock))
    return {name: every[name] for name in LIBRARIES}


# --- tables


def book_chapters(a: Analysis) -> Html:
    return data_table(required(a.chapters, "no chapter has rows", "no-data"))


def book_machines(a: Analysis) -> Html:
    return data_table(required(a.machines, "no chapter has rows", "no-data"))


def book_kernels(a: Analysis) -> Html:
    return data_table(required(a.kernels, "no chapter has rows", "no-data"))


def book_second_run(a: Analysis) -> Html:
    """By chapter, how far the times of the second run lie from the first, and how many of them do
    by more than chance."""
    rows = []
    for chapter, found in a.second_run.groupby("chapter", sort=False):
        off, words = apart(found["ratio"]), found["verdict"].value_counts()
        row = {"chapter": str(chapter).replace("_", " "), "times": len(found)}
        row |= {
            "half within": f"{off.median():.1%}",
            "nineteen in twenty within": f"{off.quantile(0.95):.0%}",
        }
        rows.append(
            row | {word: int(words.get(word, 0)) for word in (DIFFERS, NO_DIFFERENCE, CANNOT_TELL)}
        )
    return data_table(pd.DataFrame(rows))


def apart(ratios: pd.Series) -> pd.Series:
    """Return by which part the larger of two medians exceeds the smaller."""
    return np.exp(np.log(ratios).abs()) - 1
