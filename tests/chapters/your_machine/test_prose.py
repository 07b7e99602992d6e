"""The sentences about a machine: each kind has its own, and no word of a machine is more than a word."""

from __future__ import annotations

import json
import math
import re

import pytest
from support.pages import myst
from support.your_machine import KINDS, SURVEYS, WALKS, geometry, host, hostile, kind, stating, surveyed

from experiments.article import setting
from experiments.chapters.your_machine import prose
from experiments.inference import geometry_words
from experiments.inference.geometry_walks import Walk
from experiments.system.files import ROOT
from experiments.words.prose import Prose


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_machine_has_every_sentence(name: str):
    a = kind(name)
    for part in (*prose.__all__, "brief"):
        value = getattr(prose, part)(a)
        if isinstance(value, float):
            assert math.isfinite(value), part
            continue
        plain = value.replace("{cite:p}", "")
        assert plain.strip() and not re.search(r"\b(None|nan|inf)\b|\{\w|  ", plain), part
        assert not isinstance(value, Prose) or value.endswith((".", ":")), part


@pytest.mark.parametrize(("name", "part", "words"), [
    ("guest", "guest", "guest of KVM"),
    ("guest of Hyper-V", "guest", "guest of Hyper-V"),
    ("guest", "cpuid_here", "hypervisor lets through"),
    ("guest", "fifth", "hypervisor presents it, cannot walk five"),
    ("guest", "tier", "not counted"),
    ("guest", "thp", "pages of 4 KiB"),
    ("guest", "reach", "the last level reaches 6 MiB in pages of 4 KiB"),
    ("guest", "outgrow", "512 MiB to fill the second-level cache"),
    ("guest", "count_pages", "up to 64 hot pages, up to 1,536"),
    ("guest", "index", "exactly a page"),
    ("guest", "memory", "7 GiB"),
    ("guest", "brief", "64 entries at level 1"),
    ("metal with counters", "guest", "no hypervisor"),
    ("metal with counters", "tier", "walks are counted"),
    ("metal with counters", "fifth", "CPU cannot walk five"),
    ("guest without a name", "guest", "does not give its name"),
    ("emulated", "guest", "emulated in software"),
    ("five levels", "walk_here", "five levels"),
    ("five levels", "levels_are_loads", "Five levels are five loads"),
    ("five levels", "fifth", "uses five"),
    ("five possible, four used", "fifth", "its kernel uses four"),
    ("five possible, use unknown", "walk_here", "not stated"),
    ("silent CPUID", "cpuid_here", "silence is what the hypervisor lets through"),
    ("silent CPUID", "reach", "For example"),
    ("silent CPUID", "count_pages", "the next chapter"),
    ("silent CPUID, metal", "cpuid_here", "silence is the processor's own"),
    ("no CPUID", "cpuid_here", "could not be asked"),
    ("one level of TLB", "count_pages", "up to 64 hot pages, and beyond"),
    ("unknown descriptors", "tlb_source", "(0xc2)"),
    ("arm64, 4 KiB", "root", "TTBR0"),
    ("arm64, 4 KiB", "cpuid_here", "the table is empty"),
    ("arm64, 4 KiB", "tlb_source", "states nothing"),
    ("arm64, 4 KiB", "guest", "could not be found out"),
    ("arm64, 4 KiB", "walk_here", "Arm's"),
    ("arm64, 16 KiB", "walk_here", "holds 2,048 entries"),
    ("arm64, 16 KiB", "leaf_size", "32 MiB"),
    ("arm64, 16 KiB", "table_share", "1/2048"),
    ("arm64, 64 KiB", "covers", "64 KiB, 512 MiB and 4 TiB"),
    ("no caches", "outgrow", "has to be measured"),
    ("caches without sets", "index", "not stated"),
    ("THP always", "thp", "without your knowing"),
    ("THP always", "thp", "pages of 2 MiB"),
    ("THP never", "thp", "are off here"),
    ("no THP", "thp", "has no transparent huge pages"),
    ("timing only", "tier", "nothing else"),
    ("memory unknown", "memory", "no sweep can be sized"),
])
def test_the_sentence_is_the_one_for_this_kind_of_machine(name: str, part: str, words: str):
    assert words in getattr(prose, part)(kind(name)).replace("\\", "")


def test_a_first_level_cache_that_outgrows_the_offset_is_said_to():
    large = {"level": 1, "kind": "data", "size_bytes": 65536, "line_bytes": 64, "ways": 4, "sets": 256}
    assert "span 16 KiB, more than a page of 4 KiB" in prose.index(stating(host(caches=[large])))
    assert "exactly a page" in prose.index(stating(host(**KINDS["arm64, 16 KiB"], caches=[large])))


def test_what_was_published_is_the_literatures():
    a = kind("guest")
    published = {part: getattr(prose, part)(a) for part in prose.__all__ if part.endswith(("_ways", "_cycles"))}
    assert published == {"least_load_cycles": 3, "most_load_cycles": 5, "zen2_l2_ways": 12, "zen5_l2_ways": 16, "golden_cove_l1_ways": 6,
                         "m1_l1_ways": 5, "m1_walk_cycles": 35, "oryon_walk_low_cycles": 53, "oryon_walk_high_cycles": 71}
    assert prose.fault_more_percent(a) == pytest.approx(100 * (105.88 / 105.6367 - 1))
    assert prose.fault_5_ns(a) > prose.fault_4_ns(a)


# --- the survey


@pytest.mark.parametrize(("name", "numbers"), [
    ("two levels", ["3", "4.0", "64", "7.0", "2,048", "64"]), ("one level", ["2", "4.0", "64", "64"]),
    ("no clock", ["3", "4.0", "64", "7.0", "2,048", "64"]), ("ways", ["3", "4.0", "64", "7.0", "2,048", "4"]),
    ("next to nothing", ["3", "4.0", "64"])])
def test_the_lead_says_what_was_found_and_nothing_of_what_was_not(name: str, numbers: list[str]):
    lead = prose.geometry_lead(surveyed(*SURVEYS[name]))
    assert re.findall(r"\d[\d,]*(?:\.\d+)?", lead) == numbers
    assert ("4.0 ns" in lead) == (name == "no clock") and ("no sets" in lead) == (numbers[-1] == "64" and len(numbers) > 3)


@pytest.mark.parametrize("name", SURVEYS)
def test_the_verdicts_are_a_list_of_the_geometrys_sentences(name: str):
    said = prose.geometry_verdicts(surveyed(*SURVEYS[name]))
    assert said.splitlines() == [f"- {sentence}" for sentence in geometry_words.sentences(SURVEYS[name][1])]


@pytest.mark.parametrize(("walks", "words"), [
    (WALKS, ("L2", "20 cycles", "memory 300", "15.0 times")),
    (WALKS[:2], ("fewer than two",)), (WALKS[1:2], ("fewer than two",)), ([], ("fewer than two",))])
def test_walks_are_compared_where_two_of_them_have_a_price(walks: list[Walk], words: tuple[str, ...]):
    said = prose.geometry_walks(surveyed(SURVEYS["two levels"][0], geometry(walks=walks)))
    assert all(word in said for word in words)


# --- a machine's words stay words

MARKUP = ("html_inline", "html_block", "link_open", "image", "math_inline", "table_open")


def test_no_sentence_about_a_hostile_machine_holds_html_a_link_or_a_role():
    a, roles = stating(hostile()), set()
    parts = [getattr(prose, name) for name in prose.__all__] + [machine_words.guest_note, machine_words.tlb, machine_words.counters]
    for text in (value for part in parts if isinstance(value := part(a), Prose)):
        for token in (child for block in myst().parse(text) for child in (block, *(block.children or []))):
            assert token.type not in MARKUP, text
            if token.type == "myst_role":
                roles.add(token.meta["name"])
    assert roles == {"cite:p"}
    assert "alert(1)" in prose.guest(a).replace("\\", "").lower()


# --- the page


def test_the_page_shows_what_is_said_and_nothing_is_said_in_vain():
    cells = json.loads((ROOT / "book" / "your_machine.ipynb").read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    inline = re.findall(r"\{glue:(?:text|md)\}`(\w+)[:`]", text)
    assert set(inline) | set(re.findall(r"```\{glue:md\} (\w+)\n", text)) == set(prose.__all__)
