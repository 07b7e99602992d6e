"""The measured geometry in words: tables and sentences of levels of which much or little is known."""

from __future__ import annotations

from support.your_machine import FIRST, IN_NS, SECOND, estimate, geometry

from tlb.inference import geometry_words
from tlb.reasons import explain


def test_the_levels_table_has_each_opinion_with_its_bounds():
    rows = geometry_words.levels_table(
        geometry(
            levels=[
                FIRST,
                SECOND.model_copy(
                    update={
                        "opinions": {
                            "price": estimate(1999.7),
                            "draws": estimate(2050, 2000, 2100.4),
                        },
                        "stated": 3072,
                    }
                ),
            ]
        )
    ).to_dict("records")
    assert rows == [
        {
            "level": "L1 dTLB",
            "entries": "64 (64 to 65)",
            "by": "alias",
            "price": "64 (64 to 65)",
            "alias": "64 (64 to 65)",
            "draws": "–",
            "CPUID": "64",
            "hit, cycles": "0",
            "ways": "all",
        },
        {
            "level": "STLB",
            "entries": "2,048 (1,999 to 2,100)",
            "by": "alias",
            "price": "2,000",
            "alias": "–",
            "draws": "2,050 (2,000 to 2,100)",
            "CPUID": "3,072",
            "hit, cycles": "7.0 (6.9 to 7.2)",
            "ways": "–",
        },
    ]


def test_the_walks_table_has_cycles_and_ns_or_a_dash():
    rows = geometry_words.walks_table(geometry()).to_dict("records")
    assert rows == [
        {
            "page table in": "L2",
            "lines of it": "128 KiB",
            "pages": "16,384",
            "one in": "1",
            "walk, cycles": "20",
            "ns": "10",
        },
        {
            "page table in": "L3",
            "lines of it": "4 MiB",
            "pages": "65,536",
            "one in": "8",
            "walk, cycles": "–",
            "ns": "–",
        },
        {
            "page table in": "memory",
            "lines of it": "64 MiB",
            "pages": "1,048,576",
            "one in": "8",
            "walk, cycles": "300 (250 to 410)",
            "ns": "150 (125 to 205)",
        },
    ]


def test_without_a_clock_walks_are_in_ns_alone():
    table = geometry_words.walks_table(geometry(**IN_NS))
    assert [*table.columns] == ["page table in", "lines of it", "pages", "one in", "walk, ns"]
    assert [*table["walk, ns"]] == ["20", "–", "300 (250 to 410)"]
    assert "hit, ns" in geometry_words.levels_table(geometry(**IN_NS)).columns


def test_the_sentences_are_the_verdicts_the_ways_the_walks_the_penalty_and_the_notes():
    first, second, ways, walks, penalty, note = geometry_words.sentences(geometry())
    assert (first, second) == (f"L1 dTLB: {FIRST.verdict}", f"STLB: {SECOND.verdict}")
    assert ways.startswith("L1 dTLB: ") and "up to 64 pages apart" in ways
    assert "L3" in walks and walks.endswith(explain("no-data"))
    assert [penalty] == geometry_words.penalty(geometry()) and note == "Alias chases: a note."
