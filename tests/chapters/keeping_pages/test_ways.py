"""Each way of asking for memory: what it got is read from its smaps, and whatever goes wrong has
its reason."""

import json
import os
from pathlib import Path

import pytest
from support.common import refusal

from experiments.keeping_pages import documents
from tlb.measure import granted_pages
from tlb.system import procfs
from tlb.system.reasons import Unavailable

MIB = 1 << 20
BASE_PAGE_4K = os.sysconf("SC_PAGESIZE") == 4096  # of which the program asks for 2 MiB
linux = pytest.mark.skipif(
    not Path("/proc/self/smaps").exists() or not BASE_PAGE_4K,
    reason="needs Linux on base pages of 4 KiB",
)


@linux
@pytest.mark.measures
@pytest.mark.parametrize("way", documents.MEMORY_MAPPING_METHODS)
def test_a_way_gives_what_its_kind_can_or_its_reason(way):
    """What holds on any Linux: a pool's pages are large or the call fails, and what was written is
    resident."""
    try:
        got = documents.try_way(way, 16 * MIB)
    except Unavailable as why:
        assert why.code in (documents.MEMORY_MAPPING_METHODS[way].refused, "not-permitted")
        return
    assert (
        got.resident_bytes >= got.array_bytes
        and got.way == way
        and 0 <= got.huge_share <= 1
        and got.huge_bytes % (2 * MIB) == 0
    )
    if (
        way == "anonymous"
        and procfs.chosen(Path("/sys/kernel/mm/transparent_hugepage/enabled")) != "always"
    ):
        assert got.huge_bytes == 0
    if way in ("pool", "memfd-pool", "hugetlbfs"):
        assert got.huge_share == 1
    if way == "file":
        assert got.resident_bytes >= got.array_bytes == 16 * MIB
    if way == "dropped" and got.resident_bytes != got.mapped_bytes - 2 * MIB:
        assert got.resident_bytes == got.mapped_bytes - 4096
    if way == "arena" and got.huge_bytes == 0:
        assert got.resident_bytes == got.array_bytes == 100 << 10


def test_a_survey_tries_every_way_and_keeps_why_one_gave_nothing(monkeypatch):
    def measured(way: str, size: int) -> documents.MappedWay:
        if way == "pool":
            raise Unavailable("pool-empty")
        return documents.MappedWay(
            way=way,
            array_bytes=size,
            mapped_bytes=size,
            resident_bytes=size,
            huge_bytes=0,
            rest_huge_bytes=0,
        )

    monkeypatch.setattr(documents, "try_way", measured)
    inspected = granted_pages.host.inspect_machine()
    if inspected.base_page_bytes != 4096:
        pytest.skip("base pages are not of 4 KiB")
    found = documents.try_all_ways(8 * MIB)
    assert [got.way for got in found.got] == [
        way for way in documents.MEMORY_MAPPING_METHODS if way != "pool"
    ] and found.lacking == {"pool": "pool-empty"}
    assert (
        documents.MemoryMappingMethodsDocument.model_validate_json(
            json.dumps(found.model_dump(mode="json"))
        )
        == found
    )
    assert refusal(found.of, "pool") == "pool-empty"
