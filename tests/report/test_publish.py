"""The built site's files: links, figures, weights, hosts.

The site is built from the checkout; TLB_SITE names the html folder of one that is already built.
"""

import csv
import io
import re
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from support.site import pages, pages_with_figures, soup


def test_every_link_and_anchor_inside_the_site_resolves(site):
    broken = []
    known = {page: soup(site / page) for page in pages(site)}
    ids = {page: {tag.get("id") for tag in html.find_all(id=True)} for page, html in known.items()}
    for page, html in known.items():
        base = html.find("base")
        start = urljoin("/" + page, base["href"] if base else "")
        for tag in html.find_all(True):
            for value in (
                tag.get(name) for name in ("href", "src", "action") if tag.name != "base"
            ):
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
        for tag in soup(site / page).select(
            "link:not([rel=canonical]), script, img, iframe, source, object"
        ):
            values = (tag.get(name, "") for name in ("href", "src", "data"))
            foreign += [f"{page}: {value}" for value in values if "//" in value]
    assert not foreign


def test_every_figure_has_words_a_number_a_caption_and_its_data(site):
    for page in pages_with_figures(site):
        numbers = [number.text for number in soup(site / page).select("figcaption .caption-number")]
        counted = [int(number.split()[-1].rpartition(".")[2]) for number in numbers]
        assert counted == [*range(1, len(counted) + 1)], page
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


MOST_BYTES = 400_000


def test_every_page_is_light(site):
    heavy = {
        page: size for page in pages(site) if (size := (site / page).stat().st_size) > MOST_BYTES
    }
    assert heavy == {}
