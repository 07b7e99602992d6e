"""The printed book: one page whose links keep their chapters, then a PDF of vector figures with contents, numbers and links that lead."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from pypdf import PdfReader
from support.common import lacking

from experiments.article import press
from experiments.article.edition import Edition
from experiments.article.publish import SiteError

MOST_BYTES = 15_000_000
TEXT_PX = (210 - 24 - 20) * 96 / 25.4  # of A4 between the margins of press.css

CHAPTERS = """<article class="bd-article"><section id="book"><h1>A book</h1>
<p><a href="#id1">own</a> <a href="#document-book/two#id1">of the other</a> <a href="two.html#fig">in raw HTML</a>
<a href="references.html">a page</a> <a href="_sources/two.ipynb">a file</a> <a href="https://example.org/">away</a></p>
<p id="id1">One</p><svg><clipPath id="clip"></clipPath><path clip-path="url(#clip)"></path></svg>
<div class="toctree-wrapper"><span id="document-book/two"></span>
<section id="two"><h2>1. Two</h2><h3>Part</h3><p id="id1">Two <a href="{}">own</a></p><figure id="fig"></figure>
<div class="tlb-listing"><details><summary><div class="code-block-caption">Listing</div></summary><pre>code</pre></details></div>
<details><summary>More</summary>words</details></section>
<span id="document-book/references"></span><section id="references"><h2>References</h2></section></div></section></article>"""


def chapters(link: str = "#id1") -> dict:
    return press._chapters(BeautifulSoup(CHAPTERS.format(link), "html.parser"))


def test_links_of_one_page_lead_to_what_they_led_to_on_many():
    one, two, _ = chapters().values()
    assert [link.get("href") for link in one.find_all("a")] == [
        "#index--id1", "#two--id1", "#two--fig", "#references", "https://example.org/"]
    assert one.find("path")["clip-path"] == f"url(#{one.find('clippath')['id']})"
    assert two.find("a")["href"] == f"#{two.find('p')['id']}" == "#two--id1"


def test_a_chapter_stands_for_itself_and_what_unfolds_is_open_or_left_out():
    two = chapters()["two"]
    assert [(heading.name, heading.text) for heading in two.find_all(re.compile("^h"))] == [("h1", "1. Two"), ("h2", "Part")]
    assert two.select_one(".tlb-listing").get_text(strip=True) == "Listing"
    assert [folded.has_attr("open") for folded in two.find_all("details")] == [True]


def test_a_link_that_leads_nowhere_stops_the_printing_and_is_named():
    with pytest.raises(SiteError, match="a link of two, 'own', leads to #two--nothing"):
        chapters("#nothing")


# --- the whole book ---


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[str], str]]:
    """The PDF, what is wider than its paper, and the page that was printed."""
    with pytest.MonkeyPatch.context() as patch:
        wide: list[str] = []
        pages: list[str] = []
        opened = press.browser

        def watched(page: Path):
            driver = opened(page)
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                   {"width": round(TEXT_PX), "height": 900, "deviceScaleFactor": 1, "mobile": False})
            wide[:] = driver.execute_script(
                "return [...document.querySelectorAll('body *')].filter(e => !e.closest('svg') && (e.getBoundingClientRect().right >"
                " innerWidth + 1 || e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX !== 'visible'))"
                ".map(e => `${e.tagName}.${e.className}: ${e.textContent.slice(0, 80)}`)")
            driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
            pages[:] = [page.read_text(encoding="utf-8")]
            return driver

        patch.setattr(press, "browser", watched)
        try:
            path = press.pdf(tmp_path_factory.mktemp("press") / "book.pdf")
        except SystemExit as why:
            lacking(str(why))
        yield path, wide, pages[0]


@pytest.fixture(scope="module")
def reader(printed: tuple[Path, list[str], str]) -> PdfReader:
    return PdfReader(printed[0])


def squeezed(text: str) -> str:
    """Without white space, which a PDF does not keep, and ligatures, which some fonts have."""
    return re.sub(r"\s+", "", unicodedata.normalize("NFKC", text))


@pytest.mark.endurance
@pytest.mark.site
def test_nothing_is_cut_at_the_right(printed):
    assert printed[1] == []


@pytest.mark.endurance
@pytest.mark.site
def test_the_contents_name_each_chapter_and_the_page_that_it_begins_on(printed, reader):
    html = BeautifulSoup(printed[2], "html.parser")
    lines = html.select(".press-contents li a")
    assert len(lines) == len(html.select(".press-chapter")) > 10
    numbers = [int(line.select_one(".press-page").text) for line in lines]
    assert numbers == sorted(set(numbers)) and numbers[-1] <= len(reader.pages) > 4 * len(lines)
    contents = squeezed(reader.pages[1].extract_text())
    for line, number in zip(lines, numbers, strict=True):
        title = squeezed(line.find(string=True, recursive=False))
        page = squeezed(reader.pages[number - 1].extract_text())
        assert title in contents and page.count(title) >= 2, line.text  # its heading, and the running one
        assert str(number) in (page[:3], page[-len(str(number)):], page[len(title):][:len(str(number))]), (line.text, page[:99], page[-9:])


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


@pytest.mark.endurance
@pytest.mark.site
def test_figures_are_drawn_and_no_page_holds_a_picture(printed):
    assert len(BeautifulSoup(printed[2], "html.parser").select(".tlb-chart svg")) > 30
    assert not re.search(rb"/Subtype\s*/Image", printed[0].read_bytes())  # what heads a stream is never compressed
    assert printed[0].stat().st_size < MOST_BYTES


@pytest.mark.endurance
@pytest.mark.site
def test_the_file_has_the_edition_s_date_a_language_and_an_outline(reader):
    edition = Edition.of_checkout()
    assert reader.metadata.creation_date == reader.metadata.modification_date == edition.date
    assert reader.metadata.title == edition.title and reader.trailer["/Root"]["/Lang"] == "en"
    assert edition.version in reader.pages[0].extract_text()
    assert len(reader.outline) > 20
