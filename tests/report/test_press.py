"""The printed book: nothing is cut, and every link leads somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pypdf import PdfReader
from support.common import lacking

from tlb.report import press

TEXT_PX = (210 - 24 - 20) * 96 / 25.4  # of A4 between the margins of press.css


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[str]]]:
    """The PDF, and what is wider than its paper."""
    with pytest.MonkeyPatch.context() as patch:
        wide: list[str] = []
        opened = press.browser

        def watched(page: Path):
            driver = opened(page)
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
            driver.execute_cdp_cmd(
                "Emulation.setDeviceMetricsOverride",
                {"width": round(TEXT_PX), "height": 900, "deviceScaleFactor": 1, "mobile": False},
            )
            wide[:] = driver.execute_script(
                "return [...document.querySelectorAll('body *')].filter(e => !e.closest('svg') && (e.getBoundingClientRect().right >"
                " innerWidth + 1 || e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX !== 'visible'))"
                ".map(e => `${e.tagName}.${e.className}: ${e.textContent.slice(0, 80)}`)"
            )
            driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
            return driver

        patch.setattr(press, "browser", watched)
        try:
            path = press.pdf(tmp_path_factory.mktemp("press") / "book.pdf")
        except SystemExit as why:
            lacking(str(why))
        yield path, wide


@pytest.fixture(scope="module")
def reader(printed: tuple[Path, list[str]]) -> PdfReader:
    return PdfReader(printed[0])


@pytest.mark.endurance
@pytest.mark.site
def test_nothing_is_cut_at_the_right(printed):
    assert printed[1] == []


@pytest.mark.endurance
@pytest.mark.site
def test_every_link_inside_leads_to_a_page_and_every_other_to_a_host(reader):
    places, inside, outside = reader.named_destinations, 0, 0
    for page in reader.pages:
        for link in (annotation.get_object() for annotation in page.get("/Annots", [])):
            if "/Dest" in link:
                assert reader.get_destination_page_number(places[link["/Dest"]]) >= 0, link["/Dest"]
                inside += 1
            else:
                assert re.match("https?://", link["/A"]["/URI"]), link["/A"]
                outside += 1
    assert inside > 100 and outside > 10
