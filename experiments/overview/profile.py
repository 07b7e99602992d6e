"""The translation profile: what translating costs a machine, in thirty quantities that are the same
for all machines.

A profile is a pure function of a machine's rows, kept as data/<machine>/translation.json;
data/translation.schema.json is its schema, whose version grows where a field or the meaning of a
name changes. A quantity has a value between bounds, or the code of a reason and no value.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from itertools import product
from math import inf, isfinite
from types import ModuleType
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from experiments import hugepages, page_faults, stlb_cliff, virtualization
from experiments.overview import chapter_analysis
from experiments.page_faults.analysis import (
    FIRST_TOUCH_OF_BASE_PAGES,
    FIRST_TOUCH_OF_CACHED_FILE,
    FIRST_TOUCH_OF_HUGE_PAGES,
)
from experiments.virtualization.analysis import GUEST_BASE_PAGE_BYTES
from experiments.virtualization.grid import GUEST_PAGE_KINDS
from tlb.machine.host import lacking_page_kinds
from tlb.measure import survey
from tlb.measure.row_database import DATABASE_FILE as DATABASE
from tlb.measure.row_database import RowDatabase
from tlb.measure.store import PUBLISHED_ROWS_FILE, Store, data_root
from tlb.report import notebooks
from tlb.report.answers import ANSWERS_DOCUMENT
from tlb.report.chapter import Chapter
from tlb.report.quantities import (
    FEWEST_MAPPINGS_WITH_INTERVAL,
    MAY_BE_OF_FEW,
    OF_FEW,
    QUANTITIES_DOCUMENT,
)
from tlb.stats.curves import last_level_plateau
from tlb.stats.geometry import TlbGeometry
from tlb.stats.intervals import Interval
from tlb.system import page_sizes
from tlb.system.files import disk_errors_as_unavailable
from tlb.system.page_sizes import FULLY_SWEPT_PAGES, PAGE_KINDS
from tlb.system.reasons import Unavailable, none_if_unavailable, require_nonempty
from tlb.system.units import rounded_to_digits

NAME = "translation"
# Documents of data/ that are made from the others, some also by state: quantities-STATE.
DERIVED_DOCUMENTS = frozenset({NAME, QUANTITIES_DOCUMENT, ANSWERS_DOCUMENT})
PROFILE_SCHEMA_FILE = "translation.schema.json"
PAGE = "index"
FAR_BYTES = 2 << 30  # past every TLB's reach and every cache; a machine of 8 GiB has it
GUEST_BYTES = 1 << 30  # as far as the guests' matrix goes
_DIGITS = 6  # what is beyond them depends on the CPU that computed it
_SIZES = {"4k": "4 KiB", "64k": "64 KiB", "thp": "transparent 2 MiB", "2m": "2 MiB", "1g": "1 GiB"}
Part = Literal["levels", "entries", "walk by place", "pages", "faults", "guests"]
Unit = Literal["ns", "entries", "ratio"]
Of = Callable[[ModuleType], Any]  # a chapter's Analysis; raises Unavailable where there is none


class ProfileQuantity(BaseModel):
    """One number about a machine with its bounds, or why there is none."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(
        pattern=r"^[a-z0-9_]+$",
        description="the same for all machines; never given another meaning",
    )
    part: Part
    words: str = Field(description="what it is, as the figure calls it")
    unit: Unit = Field(
        description="ns: a load, a walk or a page; ratio: times as fast, or as long in a guest"
    )
    value: float | None = Field(
        default=None, description="the median; null where there is a reason"
    )
    low: float | None = Field(default=None, description="the lower bound; null where it is open")
    high: float | None = Field(default=None, description="the upper bound; null where it is open")
    coverage: float | None = Field(
        default=None,
        description="how often such bounds hold the truth, 0 to 1; 1: stated, not measured",
    )
    modes: Literal[1, 2] = Field(
        default=1,
        description="2 where processes stand at two values, and the median between them is of "
        "neither",
    )
    reason: str | None = Field(
        default=None, description="a code of tlb/system/reasons.py; null where there is a value"
    )
    detail: str = Field(default="", description="of the reason")

    @property
    def interval(self) -> Interval | None:
        if self.value is None or self.coverage is None:
            return None
        low = -inf if self.low is None else self.low
        high = inf if self.high is None else self.high
        return Interval(self.value, low, high, self.coverage, self.modes)


class TranslationProfile(BaseModel):
    """data/<machine>/translation.json: a pure function of the rows beside it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1] = 1
    machine: str
    rows: str = Field(default="", description="digest of the files that it was made from")
    quantities: tuple[ProfileQuantity, ...]

    def __getitem__(self, name: str) -> ProfileQuantity:
        return next(quantity for quantity in self.quantities if quantity.name == name)

    @property
    def lacking(self) -> dict[tuple[str, str], list[ProfileQuantity]]:
        """Return the quantities without a value, by (reason, its detail)."""
        why: dict[tuple[str, str], list[ProfileQuantity]] = {}
        for quantity in self.quantities:
            if quantity.reason:
                why.setdefault((quantity.reason, quantity.detail), []).append(quantity)
        return why


# --- the quantities


def _first_level(of: Of) -> Interval:
    return require_nonempty(of(stlb_cliff).packed.intervals, "no packed chase was measured")[0]


def _last_level(of: Of) -> Interval:
    cliff = of(stlb_cliff)
    return cliff.price.between(*last_level_plateau(*cliff.two_levels())).typical()


def _walk(of: Of) -> Interval:
    return of(stlb_cliff).walked


def _far_walk(of: Of) -> Interval:
    cliff = of(stlb_cliff)
    return cliff.price.get(FAR_BYTES // cliff.base_page_bytes)


def _entries(level: int, of: Of) -> Interval:
    geometry = of(stlb_cliff).survey
    levels = [found for found in geometry.levels if found.level == level and not found.is_alone]
    found = require_nonempty(levels, f"our chases found no level {level}", "no-geometry")
    entries = found[0].narrow_entries
    mappings = of(stlb_cliff).about.kept(survey.NAME)["repeat"].nunique()
    return entries if mappings >= FEWEST_MAPPINGS_WITH_INTERVAL else replace(entries, coverage=0.0)


def _stated(level: int, of: Of) -> Interval:
    stated = of(stlb_cliff).stated_entries
    require_nonempty(stated, "no TLB level is stated here", "no-geometry")
    (entries,) = require_nonempty(
        stated[level - 1 : level], f"no level {level} is stated", "no-geometry"
    )
    exact = float(entries)
    return Interval(exact, exact, exact)


def _walk_by_place(place: str, of: Of) -> Interval:
    """Return ns: a survey's cycles over the clock beside it."""
    survey: TlbGeometry = of(stlb_cliff).survey
    walk = next((walk for walk in survey.walks if walk.table_in == place), None)
    if walk is None or walk.cost is None:
        raise Unavailable("too-few-points", f"no chase had its table in {place}")
    if survey.unit != "cycles":
        return walk.cost.interval * 1.0
    if not survey.core_ghz:
        raise Unavailable("no-clock", "beside the survey")
    return walk.cost.interval * (1 / survey.core_ghz)


def _gain(pages: str, of: Of) -> Interval:
    a = of(hugepages)
    why = "pool-empty" if PAGE_KINDS[pages].source == "pool" else "too-few-points"
    why = lacking_page_kinds(a.host).get(pages, why)
    require_nonempty(a.spread[pages], f"nothing was chased on {page_sizes.page_words(pages)}", why)
    return a.speedup(pages).get(FAR_BYTES // a.base_page_bytes)


def _fault(way: Any, of: Of) -> Interval:
    return of(page_faults).page_ns(way)


def _guest(cell: tuple[str, str], of: Of) -> Interval:
    """Return a guest's time over a process's on the guest's page size."""
    a = of(virtualization)
    curve = require_nonempty(
        a.over_alike.get(cell, ()), "no guest was measured with these page sizes"
    )
    return curve.get(GUEST_BYTES // GUEST_BASE_PAGE_BYTES)


# Name, part, words, unit and function of each, in the order of the figure.
_QUANTITIES: list[tuple[str, Part, str, Unit, Callable[[Of], Interval]]] = [
    ("load_first_level", "levels", "first-level hit", "ns", _first_level),
    ("hit_last_level", "levels", "last-level hit", "ns", _last_level),
    ("walk_past_last_level", "levels", "walk past its reach", "ns", _walk),
    ("walk_over_2_gib", "levels", "walk over 2 GiB", "ns", _far_walk),
]
for _level in (1, 2):
    for _who, _find in (("found", _entries), ("stated", _stated)):
        _name = f"{'entries' if _who == 'found' else 'stated'}_level_{_level}"
        _words = f"entries {_who} at level {_level}"
        _QUANTITIES.append((_name, "entries", _words, "entries", partial(_find, _level)))
for _place in ("L2", "L3", "memory"):
    _name, _words = f"walk_table_{_place.lower()}", f"walk with its table in {_place}"
    _QUANTITIES.append((_name, "walk by place", _words, "ns", partial(_walk_by_place, _place)))
for _pages in FULLY_SWEPT_PAGES[1:]:
    _words = f"{_SIZES[_pages]} pages"
    _QUANTITIES.append((f"gain_{_pages}", "pages", _words, "ratio", partial(_gain, _pages)))
for _name, _way, _words in (
    ("fault_fresh", FIRST_TOUCH_OF_BASE_PAGES, "base page"),
    ("fault_fresh_large", FIRST_TOUCH_OF_HUGE_PAGES, "base page of a large one"),
    ("fault_file", FIRST_TOUCH_OF_CACHED_FILE, "page of a file in memory"),
):
    _QUANTITIES.append((_name, "faults", _words, "ns", partial(_fault, _way)))
for _guests, _host in product(page_sizes.MAPPED_PAGE_SIZES, GUEST_PAGE_KINDS):
    _name, _words = f"guest_{_guests}_on_{_host}", f"{_SIZES[_guests]} on {_SIZES[_host]}"
    _QUANTITIES.append((_name, "guests", _words, "ratio", partial(_guest, (_guests, _host))))


def profile_of_analyses(machine: str, of: Of, rows: str = "") -> TranslationProfile:
    """Return what the chapters' Analyses say of a machine. rows: the digest of what they are of."""
    found = []
    for name, part, words, unit, find in _QUANTITIES:
        value = _value(find, of)
        found.append(ProfileQuantity(name=name, part=part, words=words, unit=unit, **value))
    return TranslationProfile(machine=machine, rows=rows, quantities=tuple(found))


def _has_few_mappings(of: Of) -> bool:
    """Return whether it is this computer, and too few mappings of it tell what they cannot show."""
    cliff = none_if_unavailable(of, stlb_cliff)
    return cliff is not None and cliff.about.is_this and cliff.has_few_mappings


def _value(find: Callable[[Of], Interval], of: Of) -> dict[str, Any]:
    """Return the fields of a quantity that was measured, or those of the reason for none."""
    try:
        found = find(of)
        if not isfinite(found.value):
            raise Unavailable("too-few-points", "this size was not measured")
    except Unavailable as why:
        if why.code in MAY_BE_OF_FEW and _has_few_mappings(of):
            why = OF_FEW
        return {"reason": why.code, "detail": why.detail}
    ends = {"value": found.value, "low": found.low, "high": found.high}
    fields = {
        name: rounded_to_digits(end, _DIGITS) if isfinite(end) else None
        for name, end in ends.items()
    }
    coverage = rounded_to_digits(float(found.coverage), _DIGITS)
    return fields | {"coverage": coverage, "modes": 2 if found.modes > 1 else 1}


# --- beside the rows


def read_translation_profile(store: Store, machine: str) -> TranslationProfile:
    """Return it as it was kept. Raises Unavailable("no-data") for none, and for one of another
    version."""
    try:
        return TranslationProfile.model_validate(store.read_document(machine, NAME))
    except ValidationError:
        raise Unavailable("no-data", f"{NAME}.json of {machine} is of another version") from None


def write(store: Store, made: TranslationProfile) -> None:
    """Write it beside the rows. Raises Unavailable: disk-refused."""
    store.write_document(made.machine, NAME, made.model_dump(mode="json"))


def write_profile_if_possible(store: Store, made: TranslationProfile) -> None:
    """Write it as that of the rows that are there now, if that is possible."""
    none_if_unavailable(
        write, store, made.model_copy(update={"rows": rows_digest(store, made.machine)})
    )


def is_profile_current(store: Store, known: TranslationProfile) -> bool:
    return known.rows == rows_digest(store, known.machine)


def rows_digest(store: Store, machine: str) -> str:
    """Return a digest of a machine's rows and documents without what is derived from them; for this computer,
    also without its description, which each run writes anew with the load of the minute."""
    is_own, folder = store.root.name == "own", store.root / machine
    files = [path for path in (folder / PUBLISHED_ROWS_FILE,) if path.is_file()]
    for name, path in store.documents(machine).items():
        if name.partition("-")[0] not in DERIVED_DOCUMENTS and not (
            is_own and name.startswith("machine")
        ):
            files.append(path)
    whole = hashlib.sha256(RowDatabase(folder / DATABASE).digest().hex().encode())
    for path in files:
        whole.update(f"\n{path.parent.name}/{path.name}\n".encode())
        whole.update(hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()[:16]


def refresh() -> list[str]:
    """Write the schema, and the profiles of published machines that are not those of their rows;
    return the latter."""
    data, anew = Store(data_root()), []
    with disk_errors_as_unavailable(data.root / PROFILE_SCHEMA_FILE):
        (data.root / PROFILE_SCHEMA_FILE).write_text(schema(), encoding="utf-8")
    for machine in data.machines():
        chapter = Chapter(
            PAGE, notebooks.check_parameters(PAGE, {"machine": machine, "minutes": 0.0}), data
        )
        made, known = (
            profile_of_chapter(chapter),
            none_if_unavailable(read_translation_profile, data, machine),
        )
        if made != known:
            write(data, made)
            anew.append(machine)
    return anew


def schema() -> str:
    """Return the JSON Schema of a profile."""
    return json.dumps(TranslationProfile.model_json_schema(), indent=1, sort_keys=True) + "\n"


def of_run(given: Mapping[str, Any]) -> TranslationProfile:
    """Return the profile of the machine that a chapter was run about, by the rows that are there;
    nothing is measured. given: the run's parameters."""
    common = {name: given[name] for name in notebooks.declared_parameters(PAGE) if name in given}
    checked = notebooks.check_parameters(PAGE, common | {"minutes": 0.0})
    return profile_of_chapter(Chapter(PAGE, checked, Store(data_root())))


def profile_of_chapter(chapter: Chapter) -> TranslationProfile:
    """Return the profile of the machine that a chapter is about."""
    analyses = cache(partial(chapter_analysis, chapter=chapter))
    return profile_of_analyses(
        chapter.machine, analyses, rows_digest(chapter.store, chapter.machine)
    )
