"""The built site's files: links, words of figures, weights, hosts.

The site is built from the checkout; TLB_SITE names the html folder of one that is already built.
"""

from __future__ import annotations

import csv
import io
import re
from html import escape, unescape
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import nbformat
import pytest
from bs4 import BeautifulSoup
from support.site import pages, pages_with_figures, soup

from experiments.system import files

ROOT = files.ROOT
REPOSITORY = "https://github.com/somebody/every-load"
HOSTILE = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=1>"


def test_every_link_and_anchor_inside_the_site_resolves(site):
    broken = []
    known = {page: soup(site / page) for page in pages(site)}
    ids = {page: {tag.get("id") for tag in html.find_all(id=True)} for page, html in known.items()}
    for page, html in known.items():
        base = html.find("base")
        start = urljoin("/" + page, base["href"] if base else "")
        for tag in html.find_all(True):
            for value in (tag.get(name) for name in ("href", "src", "action") if tag.name != "base"):
                if not value or urlsplit(value).scheme in ("http", "https", "mailto", "data"):
                    continue
                path, anchor = urldefrag(urljoin(start, value))
                target = unquote(urlsplit(path).path).lstrip("/")
                if not (site / target).is_file() or (anchor and unquote(anchor) not in ids[target]):
                    broken.append(f"{page}: {value}")
    assert not broken


def test_no_page_names_another_host_for_anything_but_a_link(site):
    foreign = []
    for page in pages(site):
        for tag in soup(site / page).select("link:not([rel=canonical]), script, img, iframe, source, object"):
            values = (tag.get(name, "") for name in ("href", "src", "data"))
            foreign += [f"{page}: {value}" for value in values if "//" in value]
    assert not foreign


def test_a_link_to_a_page_shows_its_title_and_how_it_begins(site):
    described = {}
    for page in (site / "book").glob("*.html"):
        text = page.read_text(encoding="utf-8")
        said = {name: unescape(value) for name, value in re.findall(r'<meta property="og:(\w+)" content="([^"]*)">', text)}
        assert re.search(r"<title>\s*(?:\d+\. )?" + re.escape(escape(said["title"], quote=False)), text), page
        assert f'<meta name="description" content="{escape(said.get("description", ""))}">' in text, page
        assert "og:image" not in text  # which has a whole address, and this site has none
        assert said["type"] == ("website" if page.stem == "index" else "article") and said["site_name"], page
        described[page.stem] = len(said.get("description", ""))
    assert len(described) > 10 and max(described.values()) <= 200
    assert [page for page, length in described.items() if length < 60] in ([], ["references"])  # which is a list


def test_vega_is_loaded_where_there_is_a_chart_and_nowhere_else(site):
    for page in pages(site):
        html = soup(site / page)
        scripts = {Path(urlsplit(tag["src"]).path).name for tag in html.find_all("script", src=True)}
        charts = bool(html.select("script.tlb-spec"))
        assert any(name.startswith("vega-") for name in scripts) == charts, page
        assert ("figures.js" in scripts) == charts, page


# A figure that is not seen is told as a finding: something does something, more or less than something else. Where it begins and where
# it ends is none.
VERBS = {"takes", "take", "rises", "goes", "pays", "pay", "costs", "lies", "leads", "walk", "have", "are", "is", "predicts", "differs",
         "index", "waits", "falls"}
COMPARED = {"most", "least", "longest", "fastest", "slowest", "shortest", "highest", "largest", "more", "less", "than", "beside", "by",
            "rising", "like", "next"}


def untold(page: BeautifulSoup) -> list[str]:
    """The figures whose alternative text is no finding, each with its line of the page."""
    charts = {chart: set(re.findall(r"[a-z]+", chart["aria-label"].lower())) for chart in page.select(".tlb-figure .tlb-chart")}
    return [f"{chart.sourceline}: {chart['aria-label']}" for chart, words in charts.items() if not (words & VERBS and words & COMPARED)]


def test_every_figure_has_words_a_number_a_caption_and_its_data(site):
    for page in pages_with_figures(site):
        assert untold(soup(site / page)) == [], page
        for found in soup(site / page).select(".tlb-figure"):
            assert found.select_one(".tlb-chart")["role"] == "img"
            caption = found.find_parent("figure").find("figcaption")
            assert re.search(r"\d", caption.select_one(".caption-number").text), page
            assert len(caption.select_one(".caption-text").text.split()) > 5, page
            link = found.select_one(".tlb-figure-data a[download]")
            kind, data = link["href"].split(",", 1)
            assert kind == "data:text/csv;charset=utf-8" and link["download"].endswith(".csv")
            head, *rows = csv.reader(io.StringIO(unquote(data), newline=""))
            assert rows and all(len(row) == len(head) for row in rows), page


@pytest.mark.parametrize(("told", "is_finding"), [
    ("The price goes from 0.0 ns at 16 pages to 220 at 1,048,576 pages.", False), ("A line chart of the price.", False), ("", False),
    ("The price goes from 0.0 ns at 16 pages to 220 at 1,048,576, most steeply from 64 to 72.", True)])
def test_an_alternative_text_that_only_gives_end_points_is_told_with_its_line(told: str, is_finding: bool):
    page = BeautifulSoup(f'<h1>A page</h1>\n<div class="tlb-figure"><div class="tlb-chart" aria-label="{told}"></div></div>', "html.parser")
    assert untold(page) == ([] if is_finding else [f"2: {told}"])


# Who is linked to: publishers of papers, makers of processors and programs, authors that the book answers. A host that is not here is
# added by who knows whose it is.
HOSTS = {"dl.acm.org", "docs.amd.com", "docs.oracle.com", "doi.org", "en.wikichip.org", "git.kernel.org", "github.com", "go.dev", "jia.je",
         "learn.padho.ai", "notes.elimelt.com", "redis.io", "shipilev.net", "wiki.openjdk.org", "www.akkadia.org", "www.amd.com",
         "www.anandtech.com", "www.computer.org",
         "www.intel.com", "www.jabperf.com", "www.kernel.org", "www.mongodb.com", "www.postgresql.org", "www.usenix.org", "www.vldb.org"}


def unknown_hosts(page: BeautifulSoup) -> list[str]:
    """The links to other hosts than those, each with its line of the page."""
    return [f"{link.sourceline}: {link['href']}" for link in page.select("a[href]")
            if (parts := urlsplit(link["href"])).netloc and not (parts.scheme == "https" and parts.netloc in HOSTS)]


def test_links_lead_to_hosts_that_somebody_has_looked_at(site):
    assert {page: links for page in pages(site) if (links := unknown_hosts(soup(site / page)))} == {}


def test_a_link_to_an_unknown_host_is_told_with_its_line():
    away = ["https://example.com/a", "http://doi.org/10", "//example.com/b", "https://doi.org@example.com"]
    page = BeautifulSoup("\n".join(f'<a href="{link}">' for link in ["https://doi.org/10", "book/a.html", *away]), "html.parser")
    assert unknown_hosts(page) == [f"{line}: {link}" for line, link in enumerate(away, start=3)]


MOST_BYTES = 400_000


def heavy(path: Path) -> list[str]:
    """A page that is over its weight, with the lines that weigh most; else nothing."""
    lines = path.read_bytes().split(b"\n")
    if (size := sum(map(len, lines)) + len(lines) - 1) <= MOST_BYTES:
        return []
    most = sorted(range(len(lines)), key=lambda number: -len(lines[number]))[:3]
    return [f"{path.name} has {size} bytes", *(f"{path.name}:{number + 1} has {len(lines[number])}" for number in most)]


def test_every_page_and_every_notebook_is_light(site):
    files = [*(site / page for page in pages(site)), *(ROOT / "book").glob("*.ipynb")]
    assert len(files) > 10
    assert [told for path in files for told in heavy(path)] == []


def test_a_page_over_its_weight_is_told_with_the_line_that_weighs_most(tmp_path):
    page = tmp_path / "page.html"
    page.write_bytes(b"<p>\n" + b"x" * (MOST_BYTES - 4))
    assert heavy(page) == []
    page.write_bytes(page.read_bytes() + b"x")
    assert heavy(page)[:2] == [f"page.html has {MOST_BYTES + 1} bytes", f"page.html:2 has {MOST_BYTES - 3}"]


def test_every_notebook_can_be_downloaded(site):
    for notebook in (site / "_sources").rglob("*.ipynb"):
        page = site / notebook.relative_to(site / "_sources").with_suffix(".html")
        assert soup(page).select(f'a[href$="{notebook.name}"][title="Download source file"]')
        nbformat.read(notebook, as_version=4)
