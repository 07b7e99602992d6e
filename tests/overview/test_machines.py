"""The page of machines: of one, two and thirty, some of which lack all, what it shows, orders,
compares and escapes."""

from typing import Any

import pytest
from bs4 import BeautifulSoup
from markdown_it import MarkdownIt
from support import chapter
from support.campaigns import put
from support.common import make_record
from support.synthetic import HOLE, Stated

from experiments import stlb_cliff
from experiments.overview import machines, machines_tables, profile
from experiments.overview.machines import Analysis
from experiments.overview.profile import ProfileQuantity, TranslationProfile
from tlb.measure import build
from tlb.measure.store import Store
from tlb.report.chapter import Chapter
from tlb.report.quantities import Quantity
from tlb.stats.intervals import Interval
from tlb.system.reasons import Unavailable

DEFAULTS = chapter.DEFAULTS | {"minutes": 0.0}
HOSTILE = "</script><img src=x onerror=alert(1)>\u202e'.\"|{{#if}}"
A, B = "zen-3-aaaaaaaa", "zen-5-bbbbbbbb"
NAMES = [*machines._SHOWN, "gain_thp", "gain_2m", "gain_1g", "gain_64k"]
PARTS = {"load": "levels", "hit": "levels", "walk": "levels", "gain": "pages", "fault": "faults"}


def quantity(name: str, value: float | None) -> ProfileQuantity:
    """Known to 2 %; without a value, of a pool that was empty."""
    place = "walk by place" if "table" in name else PARTS[name.partition("_")[0]]
    unit = "ratio" if place == "pages" else "ns"
    known = {"reason": "pool-empty"}
    if value:
        known = {"value": value, "low": value / 1.02, "high": value * 1.02, "coverage": 0.96}
    words = f"words of {name.replace('_', ' ')}"
    return ProfileQuantity(name=name, part=place, words=words, unit=unit, **known)


def entries(found: float, stated: float = 2048.0) -> list[ProfileQuantity]:
    kind = {"part": "entries", "unit": "entries", "coverage": 1.0}
    return [
        ProfileQuantity(
            name=f"{who}_level_2", words=who, value=value, low=value, high=value, **kind
        )
        for who, value in (("entries", found), ("stated", stated))
    ]


def add(
    store: Store,
    name: str,
    factor: float | None = 1.0,
    found: float = 2048.0,
    changes: dict[str, Any] | None = None,
    **of: Any,
) -> None:
    """A machine each of whose prices is `factor` times its place in the list; None: none has a
    value."""
    store.write_machine(name, Stated(changes=changes or {}, **of).host().model_dump(mode="json"))
    quantities = [
        quantity(each, factor and factor * (place + 1)) for place, each in enumerate(NAMES)
    ]
    every = (*quantities, *(entries(found) if factor else ()))
    profile.write_profile_if_possible(store, TranslationProfile(machine=name, quantities=every))


def page(store: Store, machine: str = "reference") -> Analysis:
    return Analysis(Chapter("machines", DEFAULTS | {"machine": machine}, store))


def shown(a: Analysis) -> tuple[BeautifulSoup, str]:
    """Return the table, and the list of machines that are not shown."""
    return BeautifulSoup(machines_tables.machines_table(a).markup, "html.parser"), a.not_shown()


def many(store: Store, number: int) -> Store:
    for k in range(number):
        factor, core = 1 + (k * 7 % number) / 10, {"microarchitecture": f"Zen {k}"}
        hypervisor = "none" if k % 3 else "kvm"
        add(store, f"zen-{k:02}-aaaaaaaa", factor, 1024.0 + 64 * k, core, hypervisor=hypervisor)
    return store


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path)


# --- how many there are


@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.endurance), 30])
def test_each_machine_has_a_row_its_marks_and_its_words(store, number):
    a = page(many(store, number))
    table, _ = shown(a)
    assert len(table.select("tbody tr")) == len(a.machines) == number
    figure = machines.times_by_machine(a)
    assert figure.data["machine"].nunique() == number and len(figure.data) == number * len(
        machines._SHOWN
    )
    assert len(figure.html()) + len(str(table)) < 300_000  # of a page of 400,000
    assert bool(table.select("select")) == (number > 1)
    assert "too few mappings" not in table.text
    named = [each for each in a.machines if f" {each.label}, " in figure.alt]
    assert len(named) == (0 if number == 1 else 2)  # the dearest and the cheapest walk
    assert HOLE.search(figure.alt) is None


def test_a_label_begins_in_the_larger_part_of_its_row(store):
    spec = machines.times_by_machine(page(many(store, 4))).spec()
    labels = [one for one in spec["layer"] if one.get("mark", {}).get("type") == "text"]
    sides = {one["mark"]["align"]: one["data"]["name"] for one in labels}
    assert sides
    ends = spec["layer"][0]["encoding"]["x"]["scale"]["domain"]
    for side, name in sides.items():
        for row in spec["datasets"][name]:
            room = {"left": ends[1] / row["high"], "right": row["low"] / ends[0]}
            assert room[side] == pytest.approx(max(room.values()), rel=0.01)


# --- the order


def test_this_computer_stands_first_with_rows_of_its_own(store, monkeypatch):
    host = Stated().host()
    monkeypatch.setattr("tlb.machine.host.inspect_machine", lambda: host)
    own = machines.replace(Chapter("machines", DEFAULTS | {"machine": "this"}, store))
    add(store, "a-machine-aaaaaaaa")
    add(store.own, own.machine)
    a = Analysis(own)
    assert [(each.label, each.is_own) for each in a.machines] == [
        (machines.THIS_COMPUTER_LABEL, True),
        ("Ice Lake server", False),
    ]
    table, _ = shown(a)
    assert table.select_one("a")["href"] == "scorecard.html#verdicts-this"
    assert own.machine not in table.text  # which copies of its disk image may have as well
    store.own.write_document(own.machine, "flags", {})  # later than the profile
    again = TranslationProfile(machine=own.machine, quantities=(quantity("walk_over_2_gib", 7.0),))
    monkeypatch.setattr(machines, "profile_of_chapter", lambda chapter: again)
    assert Analysis(own).machines[0].value("walk_over_2_gib") == 7.0


# --- what cannot be read


@pytest.mark.parametrize(
    ("spoil", "lacks"),
    [
        (lambda path: (path / "translation.json").unlink(), "translation.json"),
        (
            lambda path: (path / "translation.json").write_text(
                '{"version": 0, "machine": "x", "quantities": []}'
            ),
            "another version",
        ),
        (lambda path: Store(path.parent).write_document(path.name, "flags", {}), "other rows"),
        (lambda path: (path / "machine.json").write_text("{}"), "machine.json"),
    ],
    ids=["none", "older", "of other rows", "host"],
)
def test_what_cannot_be_read_of_a_machine_is_said_and_the_others_are_shown(store, spoil, lacks):
    add(store, "zen-3-aaaaaaaa")
    add(store, "zen-5-bbbbbbbb")
    spoil(store.root / "zen-5-bbbbbbbb")
    a = page(store)
    table, told = shown(a)
    assert len(table.select("tbody tr")) == 2 and lacks.replace(".", r"\.") in told
    assert "zen-3-aaaaaaaa" in {*machines.times_by_machine(a).data["machine"]}


def test_a_machine_s_words_are_text_wherever_they_stand(store):
    words = ("cpu_model", "microarchitecture", "kernel_release", "arch", "hypervisor")
    add(store, "zen-3-aaaaaaaa", changes=dict.fromkeys(words, HOSTILE))
    add(store, "zen-5-bbbbbbbb")
    a = page(store)
    table, told = shown(a)
    figure = machines.times_by_machine(a)
    assert not table.select("img, script") and "\u202e" not in str(table) + told + figure.html()
    drawn, read = (
        BeautifulSoup(markup, "html.parser")
        for markup in (figure.html(), MarkdownIt().render(told))
    )
    assert (
        not drawn.select("img")
        and len(drawn.select("script")) == 1
        and not read.select("img, script")
    )
    assert [label for label in drawn.select("text") if "img src=x" in label.text]  # as they are


# --- what they show together


@pytest.mark.parametrize("declared", [1, 2, 3])
def test_a_machine_that_an_earlier_kernel_measured_is_marked(store, monkeypatch, declared):
    monkeypatch.setattr(build, "declared_measures", lambda kernel, engine: declared)
    for place, (name, core, measures) in enumerate(
        ((A, "Zen 3", 1), (B, "Zen 5", 2), ("zen-6-cccccccc", "Zen 6", 2))
    ):
        put(store, name, "stlb_cliff", make_record(measures=measures))
        add(store, name, 1.0 + place, changes={"microarchitecture": core})
    a = page(store)
    marked = {
        row.select_one("strong").text: "earlier" in row.text
        for row in shown(a)[0].select("tbody tr")
    }
    assert marked == {"Zen 3": declared > 1, "Zen 5": declared > 2, "Zen 6": declared > 2}


# --- numbers to remember


def test_a_row_of_other_base_pages_says_so_in_its_cells(store):
    add(store, "alike")
    add(store, "other", changes={"base_page_bytes": 65536})
    rows, _ = shown(page(store))
    for row in rows.tbody("tr"):
        texts = [cell.get_text() for cell in row("td")[1:]]
        measured = [text for text in texts if " ns" in text or " entries" in text]
        marked = ["64 KiB pages" in text for text in measured]
        assert marked and all(marked) == any(marked) == ("other" in row.th.get_text())


@pytest.mark.parametrize(
    ("high", "shown"), [(14.0, "12 ns"), (39.0, "10 to 39 ns"), (410.0, "10 to 410 ns")]
)
def test_of_a_wide_interval_the_range_stands_alone(high, shown):
    one = Quantity("a", "ns", 0, Interval(12.0, 10.0, high), mappings=9)
    assert machines_tables._without_interval(one) == shown


def test_the_range_over_machines_leaves_out_what_rests_on_few_mappings(store, monkeypatch):
    kept = []
    for ns, mappings, coverage in ((3.0, 9, 0.96), (5.0, 5, 0.94), (9.0, 3, 0.75)):
        known = {"value": ns, "low": ns - 1, "high": ns + 1}
        known |= {"mappings": mappings, "coverage": coverage}
        kept.append(stlb_cliff.Quantities({"near_ns": known}))
    monkeypatch.setattr(machines_tables, "_kept_of_machines", lambda *_: kept)
    about = Chapter("numbers", DEFAULTS | {"machine": "reference"}, store)
    found = machines_tables.range_over_machines(about, stlb_cliff, "near_ns")
    assert found == machines_tables.RangeOverMachines(2.0, 6.0, 2)
    with pytest.raises(Unavailable):
        machines_tables.range_over_machines(about, stlb_cliff, "hit_ns")


def test_a_column_names_base_pages_that_the_rows_do_not():
    hosts = [Stated().host(), Stated(changes={"base_page_bytes": 65536, "tlb": ()}).host()]
    heads = [machines_tables._own_head(host) for host in hosts]
    assert ["64 KiB" in head for head in heads] == [False, True]
    entries = Quantity("entries", "pages", 0, Interval(2048, 2048, 2048))
    notes = [machines_tables._of_levels(entries, host).conditions for host in hosts]
    assert ["all levels" in note for note in notes] == [False, True]


def test_the_range_is_of_the_published_machines_wherever_own_rows_are_kept(tmp_path):
    about = Chapter("numbers", DEFAULTS | {"machine": "this"}, Store(tmp_path))
    assert machines_tables.range_over_machines(about, stlb_cliff, "near_ns").machines > 1
    assert "Zen 4" in machines_tables.numbers_table(about).text
