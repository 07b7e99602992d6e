"""The pages about a machine: each kind has its sentences, and no word of a machine is more than a word."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

import pandas as pd
import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from myst_parser.config.main import MdParserConfig
from myst_parser.mdit_to_docutils.base import DocutilsRenderer
from myst_parser.parsers.mdit import create_md_parser
from support.synthetic import Stated, Truth, frame, grid, tlbs
from test_cpuid import ICE_LAKE, reader
from test_host import HERE, inspect
from test_render import Elements

from experiments.article import chapter as chapters
from experiments.article import machine_words as findings
from experiments.article.machine_words import Prose, escape_markdown
from experiments.chapters.your_machine import address as paging
from experiments.chapters.your_machine import figures as staircase
from experiments.chapters.your_machine import prose as portrait
from experiments.chapters.your_machine import tables as reach
from experiments.front import index as overview
from experiments.machine.doctor import advice
from experiments.machine.host import Host
from experiments.system import files
from experiments.words.reasons import REASONS, Unavailable

ROOT = files.ROOT
CORES, FAULTS = chapters.literature("microarchitectures"), chapters.literature("page_fault_levels")
HOSTILE = (
    "</script><script>alert(1)</script>[x](javascript:alert(1)) `{raw} html` "
    "<img src=x onerror=alert(1)> $a$ | *b*"
)
GIB = 2**30


def host(**changes: object) -> Host:
    """An x86-64 guest of KVM with four levels and a TLB of two, changed."""
    return Stated(hypervisor="kvm", changes=changes).host()


ARM = {"arch": "aarch64", "tlb": (), "tlb_reason": "no-cpuid", "la57": None, "hypervisor": "unknown"}
COUNTERS = {"tier": "counters", "reason": None}
KINDS = {
    "guest": {},
    "metal with counters": {"hypervisor": "none", "pmu": COUNTERS},
    "guest without a name": {"hypervisor": "unknown"},
    "emulated": {"hypervisor": "qemu-tcg"},
    "five levels": {"page_table_levels": 5, "la57": True},
    "five possible, four used": {"la57": True},
    "five possible, use unknown": {"la57": True, "page_table_levels": None},
    "silent CPUID": {"tlb": (), "tlb_reason": "no-geometry"},
    "silent CPUID, metal": {"tlb": (), "tlb_reason": "no-geometry", "hypervisor": "none"},
    "no CPUID": {"tlb": (), "tlb_reason": "no-cpuid", "la57": None},
    "one level of TLB": {"tlb": tlbs((64,), (4,))},
    "unknown descriptors": {"tlb_unknown_descriptors": ("0xc2",)},
    "arm64, 4 KiB": ARM,
    "arm64, 39 bits": {**ARM, "page_table_levels": 3},
    "arm64, 16 KiB": {**ARM, "base_page_bytes": 16384},
    "arm64, 64 KiB": {**ARM, "base_page_bytes": 65536, "page_table_levels": 3},
    "arm64, levels unknown": {**ARM, "page_table_levels": None, "base_page_bytes": 65536},
    "riscv64": {**ARM, "arch": "riscv64"},
    "no caches": {"caches": ()},
    "caches without sets": {"caches": [{"level": 1, "kind": "data", "size_bytes": 65536}]},
    "THP always": {"thp": {"enabled": "always", "defrag": "defer"}},
    "THP never": {"thp": {"enabled": "never", "defrag": "never"}},
    "no THP": {"thp": {"enabled": "absent", "defrag": "absent"}},
    "timing only": {"pmu": {"tier": "timing", "reason": "no-perf"}},
    "memory unknown": {
        "memory": {"total_bytes": 0, "available_bytes": 0, "usable_bytes": 0, "limit_source": "unknown"}
    },
    "not Linux": {"os": "Darwin", "pmu": {"tier": "timing", "reason": "not-linux"}},
}


def said(of: Host) -> findings.Said:
    return portrait.portrait(of, CORES, FAULTS)


def tables(of: Host) -> list[str]:
    html = [reach.reach_table, reach.tlb_table, reach.outgrow_table, portrait.advice_list]
    return [show(of).markup for show in html] + [" ".join(one) for one in reach.verdicts(of, CORES)]


# --- every kind of machine ---


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_machine_has_every_sentence(kind):
    of = host(**KINDS[kind])
    spoken = said(of)
    assert spoken.keys() == said(host()).keys()
    for name, value in spoken.items():
        if isinstance(value, float):
            assert math.isfinite(value), name
        else:
            plain = value.replace("{cite:p}", "")
            assert plain.strip() and not re.search(r"\b(None|nan|inf)\b|\{\w|  ", plain), name
    for name in (name for name, value in spoken.items() if isinstance(value, Prose)):
        assert spoken[name].endswith((".", ":")), name
    assert not [text for text in tables(of) if re.search(r"\b(None|nan)\b", text)]
    assert paging.address_bits(of).svg()


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("guest", "guest", "guest of KVM"),
        ("guest", "cpuid_here", "what the hypervisor lets through"),
        ("guest", "fifth", "as its hypervisor presents it, cannot walk five"),
        ("guest", "tier", "timed, not counted"),
        ("guest", "thp", "a program that does not ask gets pages of 4 KiB"),
        ("guest", "reach", "level 2 reaches 6 MiB in pages of 4 KiB"),
        ("guest", "outgrow", "512 MiB to fill the second-level cache"),
        ("guest", "count_pages", "up to 64 hot pages, up to 1,536"),
        ("guest", "index", "exactly a page"),
        ("guest", "memory", "7 GiB were usable"),
        ("metal with counters", "guest", "no hypervisor"),
        ("metal with counters", "tier", "walks are counted"),
        ("metal with counters", "fifth", "CPU cannot walk five"),
        ("guest without a name", "guest", "does not give its name"),
        ("emulated", "guest", "emulated in software"),
        ("five levels", "walk_here", "walks five levels"),
        ("five levels", "levels_are_loads", "Five levels are five loads"),
        ("five levels", "fifth", "This machine uses five"),
        ("five possible, four used", "fifth", "can walk five levels; its kernel uses four"),
        ("five possible, use unknown", "walk_here", "not stated"),
        ("silent CPUID", "cpuid_here", "the silence is what the hypervisor lets through"),
        ("silent CPUID", "reach", "For example"),
        ("silent CPUID", "count_pages", "the steps that the next chapter finds"),
        ("silent CPUID, metal", "cpuid_here", "the silence is the processor's own"),
        ("no CPUID", "cpuid_here", "could not be asked"),
        ("unknown descriptors", "tlb_source", "does not know (0xc2)"),
        ("arm64, 4 KiB", "cpuid_here", "one of those, so the table is empty"),
        ("arm64, 4 KiB", "tlb_source", "states nothing"),
        ("arm64, 4 KiB", "guest", "could not be found out"),
        ("arm64, 4 KiB", "walk_here", "The names are Arm's"),
        ("arm64, 16 KiB", "walk_here", "holds 2,048 entries"),
        ("arm64, 16 KiB", "leaf_size", "32 MiB"),
        ("arm64, 16 KiB", "table_share", "1/2048"),
        ("arm64, 64 KiB", "covers", "64 KiB, 512 MiB and 4 TiB"),
        ("no caches", "outgrow", "has to be measured"),
        ("caches without sets", "index", "not stated"),
        ("THP always", "thp", "without your knowing"),
        ("THP never", "thp", "are off here"),
        ("no THP", "thp", "has no transparent huge pages"),
        ("timing only", "tier", "times and nothing else"),
        ("memory unknown", "memory", "no sweep can be sized"),
    ],
)
def test_the_sentence_is_the_one_for_this_kind_of_machine(kind, name, words):
    assert words in said(host(**KINDS[kind]))[name].replace("\\", "")


def test_a_first_level_cache_that_outgrows_the_offset_is_said_to():
    large = {"level": 1, "kind": "data", "size_bytes": 65536, "line_bytes": 64, "ways": 4, "sets": 256}
    assert "span 16 KiB, more than a page of 4 KiB" in said(host(caches=[large]))["index"]
    assert "exactly a page" in said(host(**KINDS["arm64, 16 KiB"], caches=[large]))["index"]


def test_the_advice_is_the_doctors_each_with_its_remedy(tmp_path):
    of = inspect(tmp_path, {"proc/loadavg": "2.50 1 1 1/1 1\n"})
    shown = portrait.advice_list(of)
    assert shown.text.splitlines() == [f"{one.topic}: {one.finding} {one.remedy}" for one in advice(of)]
    assert any("something else is running" in line for line in shown.text.splitlines())
    seen = Elements(shown.markup)
    assert seen.tags.count("li") == len(advice(of)) and "".join(seen.text).count("`") == 0
    assert "Measuring needs Linux" in portrait.advice_list(host(**KINDS["not Linux"])).text


def test_a_command_keeps_its_letters_and_may_break_after_its_slashes():
    markup = portrait.advice_list(host(thp={"enabled": "never", "defrag": "never"})).markup
    assert "tee /<wbr>sys/<wbr>kernel/<wbr>mm/<wbr>transparent_hugepage/<wbr>enabled</code>" in markup
    command = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
    assert command in "".join(Elements(markup).text)


def test_where_there_is_nothing_to_mend_that_is_said():
    pools = [{"page": page, "total": 9, "free": 9, "reserved": 0, "surplus": 0} for page in ("2m", "1g")]
    quiet = host(mthp={"64k": "madvise"}, hypervisor="none", pmu=COUNTERS, pools=pools)
    assert portrait.advice_list(quiet).text.startswith("Nothing was found")


def test_arm64_says_in_each_table_what_is_lacking():
    of = host(**ARM)
    lacking = REASONS["no-cpuid"].sentence
    assert lacking in reach.reach_table(of).text and lacking in reach.tlb_table(of).text
    assert [verdict for _, verdict, _ in reach.verdicts(of, CORES)] == ["fails", "cannot tell", "fails"]


# --- the tree ---

# Address bits, and the shifts of PGD to PTE: Linux, arch/x86/include/asm/pgtable_64_types.h, and for arm64
# the tables of Documentation/arch/arm64/memory.rst.
SHIFTS = {
    ("x86_64", 4096, 4): (48, [39, 30, 21, 12]),
    ("x86_64", 4096, 5): (57, [48, 39, 30, 21, 12]),
    ("aarch64", 4096, 3): (39, [30, 21, 12]),
    ("aarch64", 4096, 4): (48, [39, 30, 21, 12]),
    ("aarch64", 16384, 4): (48, [47, 36, 25, 14]),
    ("aarch64", 65536, 2): (42, [29, 16]),
    ("aarch64", 65536, 3): (48, [42, 29, 16]),
}


@pytest.mark.parametrize(("arch", "page", "levels"), SHIFTS)
def test_an_address_splits_where_linux_splits_it(arch, page, levels):
    bits, lows = SHIFTS[arch, page, levels]
    split = paging.split(host(arch=arch, base_page_bytes=page, page_table_levels=levels))
    assert split.bits == bits and split.stated
    assert [level.low_bit for level in split.levels] == lows
    assert split.offset.high_bit == lows[-1] - 1 and 2**split.offset.bits == page


ARCHITECTURES = st.sampled_from(["x86_64", "aarch64", "riscv64"])


@given(ARCHITECTURES, st.sampled_from([12, 14, 16]), st.none() | st.integers(2, 5))
def test_every_bit_of_an_address_has_one_place(arch, offset_bits, levels):
    # A level that would begin above bit 47 is one that no arm64 kernel has.
    assume(arch != "aarch64" or offset_bits + ((levels or 2) - 1) * (offset_bits - 3) < 48)
    split = paging.split(host(arch=arch, base_page_bytes=2**offset_bits, page_table_levels=levels))
    fields = (*split.levels, split.offset)
    places = [bit for field in fields for bit in range(field.high_bit, field.low_bit - 1, -1)]
    assert places == list(range(split.bits - 1, -1, -1))
    assert all(level.bits >= 1 for level in split.levels) and split.stated == (levels is not None)


def test_the_figure_names_each_level_with_its_bits_and_what_an_entry_covers():
    figure = paging.address_bits(host(page_table_levels=5))
    for words in (
        "57-bit", "five groups of 9 bits", "PML5, bits 56–48, 256 TiB", "PML4, bits 47–39, 512 GiB",
        "PDPT, bits 38–30, 1 GiB", "PD, bits 29–21, 2 MiB", "PT, bits 20–12, 4 KiB", "bits 11–0",
    ):
        assert words in figure.alt
    assert "1, 11, 11 and 11 bits" in paging.address_bits(host(**KINDS["arm64, 16 KiB"])).alt


@pytest.mark.parametrize(("kind", "groups"), [("guest", 4), ("five levels", 5), ("arm64, 39 bits", 3)])
def test_as_many_groups_are_drawn_as_the_machine_walks_levels(kind, groups):
    figure = paging.address_bits(host(**KINDS[kind]))
    assert len(figure.data) == groups + 1
    drawn = Elements(figure.svg()).text
    assert [text for text in drawn if text.startswith("load ")] == [f"load {n + 1}" for n in range(groups)]
    assert drawn.count("9 bits") == groups and drawn.count("12 bits") == 1
    names = figure.data["level"].iloc[:-1]
    assert set(names) < set(drawn) and list(figure.data["bits"]) == [9] * groups + [12]


@pytest.mark.parametrize("kind", ["guest", "five levels", "arm64, 16 KiB", "arm64, 64 KiB"])
def test_a_box_is_as_wide_as_it_has_bits(kind):
    figure = paging.address_bits(host(**KINDS[kind]))
    rows = [row for rows in figure.spec()["datasets"].values() for row in rows if "among" in row]
    width = {row["level"]: row["x2"] - row["x"] for row in rows}
    assert width == dict(zip(figure.data["level"], figure.data["bits"], strict=True))


# --- the tables ---


def test_a_reach_is_entries_times_page_size_and_parts_of_a_level_add_up(tmp_path):
    of = inspect(tmp_path, here=replace(HERE, cpuid=reader(ICE_LAKE)))
    entries = {(row.level, row.page_bytes): row.entries for row in reach.reaches(of)}
    small, large, largest = 2**12, 2**21, 2**30
    # The second level holds 4 KiB pages in two parts of 1,024; stores and instructions do not count.
    assert entries == {
        (1, small): 64, (1, large): 32, (1, largest): 8,
        (2, small): 2048, (2, large): 1024, (2, largest): 1024,
    }
    assert reach.reaches(of)[3].reach_bytes == 8 * 2**20
    assert "2\t4 KiB\t2048\t8 MiB" in reach.reach_table(of).text


def test_the_page_table_fills_a_cache_at_512_times_its_size():
    rows = reach.outgrow_table(host()).text.splitlines()[1:]
    assert rows == ["L1\t32 KiB\t16 MiB", "L2\t1 MiB\t512 MiB"]


def test_the_published_hit_costs_are_differences_of_whole_loads():
    table = reach.hit_costs(CORES).set_index("core")
    assert list(table.loc["Golden Cove"]) == [5, 12, 7]
    assert table.loc["Neoverse V2", "difference"] == 5 and pd.isna(table.loc["Neoverse V2"].iloc[0])
    known = table.dropna()
    assert (known["second level answers"] - known["first level answers"] == known["difference"]).all()


def test_only_like_is_compared_where_vendors_and_measurements_disagree():
    rows = set(reach.disagreements(CORES).itertuples(index=False, name=None))
    assert rows == {
        ("Golden Cove", "second level, entries", 2048, 1600),
        ("Gracemont", "first level, entries", 32, 48),
        ("Neoverse V2", "second level, cycles added", 6, 5),
        ("Intel, CPUID descriptor 0xC3", "second level, ways", 6, 12),
    }


@pytest.mark.parametrize(
    ("ways", "verdict"),
    [((0, 12), "fails"), ((0, 0), "holds"), ((0, None), "cannot tell"), ((None, 4), "fails")],
)
def test_full_associativity_is_judged_by_what_each_level_states(ways, verdict):
    claim = reach.verdicts(host(tlb=tlbs(ways=ways)), CORES)[1]
    assert "fully associative" in claim.claim and claim.verdict == verdict


# --- a machine's words stay words ---

MYST = yaml.safe_load((ROOT / "_config.yml").read_text())["parse"]["myst_enable_extensions"]
# Letters, signs and blanks of every script; control characters never come out of a Host's own reading.
SIGNS = "`\\{}[]()<>$|*_!#&:%+-=~ax \t"
# What would begin a block at the start of a line.
BLOCKS = ["~~~ x", "+++", "% x", "(x)=", "- x", "1. x", "# x", "> x", ":::{x}", "***", "[x]: y", "$$", "<!--"]
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"])) | st.text(SIGNS, max_size=30)


def myst() -> MarkdownIt:
    return create_md_parser(MdParserConfig(enable_extensions=set(MYST)), DocutilsRenderer)


def pieces(markdown: str) -> list[tuple[str, str]]:
    """(kind, text) of each inline token of one paragraph."""
    blocks = [token for token in myst().parse(markdown) if token.type != "front_matter"]
    assert [token.type for token in blocks] in ([], ["paragraph_open", "inline", "paragraph_close"]), markdown
    return [(token.type, token.content) for block in blocks for token in block.children or []]


@given(TEXTS | st.sampled_from(BLOCKS))
def test_escaped_text_is_that_text_and_nothing_else(text):
    found = pieces(escape_markdown(text))
    assert {kind for kind, _ in found} <= {"text", "text_special"}
    assert "".join(content for _, content in found) == " ".join(text.split())


def hostile() -> Host:
    """A machine each of whose words is an attack."""
    calm = json.loads(host().model_dump_json())
    return Host.model_validate(calm | {
        "cpu_model": HOSTILE, "microarchitecture": HOSTILE, "hypervisor": HOSTILE, "kernel_release": HOSTILE,
        "microcode": HOSTILE, "vendor": HOSTILE, "c_compiler": HOSTILE, "tlb_unknown_descriptors": [HOSTILE],
        "mthp": {HOSTILE: HOSTILE}, "thp": {"enabled": HOSTILE, "defrag": HOSTILE},
        "memory": calm["memory"] | {"limit_source": HOSTILE}, "noise": calm["noise"] | {"governor": HOSTILE},
        "tlb": [tlb | {"source": HOSTILE, "pages": ["4k", HOSTILE]} for tlb in calm["tlb"]],
    })


MARKUP = ("html_inline", "html_block", "link_open", "image", "math_inline", "table_open")


def test_no_sentence_about_a_hostile_machine_holds_html_a_link_or_a_role():
    everything = findings.machine(hostile()) | said(hostile())
    roles = set()
    for name, text in everything.items():
        if not isinstance(text, Prose):
            continue
        for token in (child for block in myst().parse(text) for child in (block, *(block.children or []))):
            assert token.type not in MARKUP, name
            if token.type == "myst_role":
                roles.add(token.meta["name"])
    assert roles == {"cite:p"}
    assert "alert(1)" in everything["guest"].replace("\\", "")


def test_no_table_or_figure_of_a_hostile_machine_holds_an_element_of_its_own():
    of = hostile()
    for text in [*(table for table in tables(of) if table.startswith("<")), paging.address_bits(of).html()]:
        seen = Elements(text)
        assert seen.tags.count("script") <= 1 and "img" not in seen.tags
        assert not [name for name, _ in seen.attributes if name.startswith("on")]
    assert "alert(1)" in "".join(Elements(reach.tlb_table(hostile()).markup).text)


# --- the first page ---


def first_page(of: Host, rows: pd.DataFrame | None, lacking: str = "", **parameters: str) -> findings.Said:
    return overview.overview(of, rows, lacking, **{"machine": "reference", "profile": "full"} | parameters)


def test_the_results_in_brief_are_those_of_the_rows():
    page = first_page(host(), frame(Truth(entries=(64, 1536), hit_ns=2.0, walk_ns=9.0), grid(GIB)))
    assert "2.0" in page["results"] and "64 entries at level 1" in page["results"]
    walk = float(re.search(r"Just past the second level, ([\d.]+) ns", page["results"])[1])
    assert walk == pytest.approx(11, rel=0.02)
    assert re.search(r"From 1,536 pages to twice as many, a load slows by a factor of 4\.\d", page["results"])
    assert page["results"].count("\n- ") == 4
    assert "the reference machine, measured on 2025-01-31" in page["scope"]


def test_the_other_chapters_leads_stand_below_and_only_those_that_their_rows_give(monkeypatch: pytest.MonkeyPatch):
    def lead(rows: pd.DataFrame, entries: Sequence[int]) -> str:
        if rows.empty:
            raise Unavailable("too-few-points", "no row")
        return f"{len(rows)} rows and {entries[-1]:,} entries."

    monkeypatch.setattr(overview, "LEADS", {name: (f"About {name}.", lead) for name in ("a", "b", "c")})
    rows = frame(Truth(), grid(GIB))
    page = overview.overview(host(), rows, "", "reference", "full", {"a": rows.head(3), "b": rows.head(0), "c": None})
    assert "- **About a.** 3 rows and 1,536 entries." in page["results"] and "About b" not in page["results"] + page["scope"]
    assert page["results"].count("\n- ") == 5


def test_without_geometry_the_results_keep_to_what_was_measured():
    page = first_page(host(tlb=(), tlb_reason="no-geometry"), frame(Truth(), grid(GIB)))
    assert "What translation costs" in page["results"] and "What a walk costs" not in page["results"]
    assert not re.search(r"\b(nan|None)\b", "".join(page.values()))


def test_without_the_independent_loop_nothing_is_said_of_it():
    rows = frame(Truth(), [point for point in grid(GIB) if point.kernel == "page_chase"])
    assert "published loops" not in first_page(host(), rows)["results"]


def test_the_first_page_says_whose_results_it_shows():
    rows = frame(Truth(), grid(GIB))
    assert "the machine `zen-4-00112233`" in first_page(host(), rows, machine="zen-4-00112233")["scope"]
    this = first_page(host(), rows, machine="this", profile="smoke")["scope"]
    assert "the computer that built this page" in this and "too few" in this
    assert "too few" not in first_page(host(), rows, machine="this")["scope"]


def test_a_machine_without_rows_has_a_first_page_all_the_same():
    def measure(name: str) -> pd.DataFrame:
        raise Unavailable("no-data", name)

    rows, lacking = overview.attempt(measure, "stlb_cliff")
    assert rows is None and lacking.startswith(REASONS["no-data"].sentence.removesuffix("."))
    page = first_page(host(**ARM), rows, lacking)
    assert page.keys() == first_page(host(), frame(Truth(), grid(GIB))).keys()
    assert all(page.values()) and page["scope"] == lacking


def test_what_is_wrong_and_not_lacking_stays_an_error():
    def measure(name: str) -> pd.DataFrame:
        raise Unavailable("bad-parameter", name)

    with pytest.raises(Unavailable, match="stlb_cliff"):
        overview.attempt(measure, "stlb_cliff")


# --- the notebooks ---


def sources(name: str) -> list[str]:
    cells = json.loads((ROOT / "book" / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells]


def test_one_set_of_parameters_fits_all_chapters():
    names = chapters.table_of_contents()
    assert {"index", "your_machine", "stlb_cliff"} <= set(names)
    cells = {name: [text for text in sources(name) if text.startswith("machine: str")] for name in names}
    assert all(found == cells["stlb_cliff"] and len(found) == 1 for found in cells.values())


def glued(name: str) -> set[str]:
    text = "\n".join(sources(name))
    inline = re.findall(r"\{glue:(?:text|md)\}`(\w+)[:`]", text)
    return set(inline) | set(re.findall(r"```\{glue:md\} (\w+)\n", text))


def test_each_page_shows_what_is_said_and_nothing_is_said_in_vain(monkeypatch: pytest.MonkeyPatch):
    def unmeasured() -> NoReturn:
        raise Unavailable("no-data")

    monkeypatch.setattr(staircase, "glue", lambda *_: None)
    measured, _, _ = staircase.tell(unmeasured)
    machine = findings.machine(host())
    for name, own in (("your_machine", said(host()) | measured), ("index", first_page(host(), None, "Nothing."))):
        assert glued(name) <= own.keys() | machine.keys()
        assert own.keys() <= glued(name), name
