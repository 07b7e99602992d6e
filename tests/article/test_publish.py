"""The built site in a browser: offline, free of errors, readable without scripts, on any screen, by night.

The site is built from the checkout; TLB_SITE names the html folder of one that is already built. Without
Chromium these tests are skipped on a person's machine and fail where CI is "true".
"""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import nullcontext
from html import escape, unescape
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit
from xml.etree import ElementTree

import altair as alt
import nbformat
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from selenium import webdriver
from selenium.common.exceptions import JavascriptException, MoveTargetOutOfBoundsException
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait
from support.pages import contrast, figure
from support.site import OVERFLOW, errors, open_page, pages, pages_with_figures, requests, resize, scripts_off, served, soup

from experiments.article.publish import SiteError, build_site
from experiments.article.render import Figure, data_table, lacking_note
from experiments.article.verdicts import Claim, Verdict, verdict_table
from experiments.system import files

ROOT = files.ROOT
REPOSITORY = "https://github.com/somebody/every-load"
HOSTILE = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=1>"

# --- the files ---


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
HOSTS = {"dl.acm.org", "docs.amd.com", "docs.oracle.com", "doi.org", "en.wikichip.org", "github.com", "go.dev", "jia.je", "learn.padho.ai",
         "notes.elimelt.com", "redis.io", "shipilev.net", "wiki.openjdk.org", "www.akkadia.org", "www.amd.com", "www.computer.org",
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


# --- in the browser ---


def test_a_page_opened_as_a_file_works_as_well(driver, site):
    for page in pages(site):
        open_page(driver, (site / page).as_uri())
        assert not errors(driver), page
        assert all(url.startswith((site.as_uri(), "data:", "blob:")) for url in requests(driver)), page


@pytest.mark.parametrize("kind", ["served", "file"])
def test_search_finds_a_page(driver, site, address, kind):
    title = soup(site / pages_with_figures(site)[0]).find("h1").find(string=True, recursive=False)
    word = max(re.findall(r"[a-z]+", title.lower()), key=len)
    open_page(driver, f"{address if kind == 'served' else site.as_uri() + '/'}search.html?q={word}")
    WebDriverWait(driver, 10).until(lambda d: d.find_elements(By.CSS_SELECTOR, "#search-results li a"))
    assert not errors(driver)


# What of an article cannot be seen, outside of what a reader can unfold.
HIDDEN = """
return [...document.querySelectorAll("article *")].filter((element) =>
  element.textContent.trim() && !element.checkVisibility({ visibilityProperty: true }) &&
  !element.closest("script, style, option, .headerlink, summary") && !element.closest("details:not([open])"))
  .map((element) => element.outerHTML.slice(0, 150));
"""


def test_everything_shows_without_scripts(driver, site, address):
    with scripts_off(driver):
        for page in pages_with_figures(site):
            driver.get(address + page)
            assert not driver.execute_script(HIDDEN), page
            for found in driver.find_elements(By.CSS_SELECTOR, ".tlb-figure"):
                assert found.get_attribute("data-state") is None  # no script ran
                drawn = found.find_element(By.CSS_SELECTOR, ".tlb-chart > svg")
                assert drawn.is_displayed() and drawn.size["height"] > 100, page


def test_figures_become_interactive_with_scripts(driver, site, address):
    told = ""
    for page in pages_with_figures(site):
        open_page(driver, address + page)
        for found in driver.find_elements(By.CSS_SELECTOR, ".tlb-figure"):
            assert found.get_attribute("data-state") == "interactive", page
            chart = found.find_element(By.CSS_SELECTOR, ".tlb-chart")
            assert chart.get_attribute("role") == "img" and chart.get_attribute("aria-label")
            drawn = chart.find_elements(By.CSS_SELECTOR, "svg")
            assert len(drawn) == 1 and drawn[0].is_displayed() and drawn[0].size["height"] > 100, page
            told = told or tooltip(driver, found)
    assert told, "no figure shows a value under the pointer"


def test_the_calculator_answers_in_words_what_it_is_asked(driver, site, address):
    open_page(driver, address + "book/hugepages.html")
    figure = driver.find_element(By.ID, "tlb-figure-calculator")
    answer = figure.find_element(By.CSS_SELECTOR, "output.tlb-answer")
    assert not figure.find_elements(By.CSS_SELECTOR, ".tlb-chart select, .tlb-chart output")  # what is in the image is not read out
    spec = json.loads(figure.find_element(By.CSS_SELECTOR, "script.tlb-spec").get_attribute("textContent"))
    answers = next(param["value"] for param in spec["params"] if param["name"] == "answers")
    size, pages = (Select(found) for found in figure.find_elements(By.TAG_NAME, "select"))
    assert len(pages.options) == len(answers) > 1
    for name, known in answers.items():
        pages.select_by_visible_text(name)
        size.select_by_index(0)
        WebDriverWait(driver, 10).until(lambda _, known=known: answer.text in known.values())
        assert answer.text.startswith(f"{size.first_selected_option.text} on {name} pages: reach ")


def tooltip(driver: webdriver.Chrome, found) -> str:
    """The HTML of the tooltip at the first mark that has one, or nothing."""
    driver.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", found)
    for mark in found.find_elements(By.CSS_SELECTOR, ".role-mark:is(.mark-symbol, .mark-rect) path")[:12]:
        try:
            ActionChains(driver, duration=0).move_to_element(mark).perform()
        except (MoveTargetOutOfBoundsException, JavascriptException):
            continue
        shown = driver.find_elements(By.CSS_SELECTOR, "#vg-tooltip-element.visible")
        if shown and shown[0].is_displayed():
            return shown[0].get_attribute("innerHTML")
    return ""


@pytest.mark.parametrize(("width_px", "scripts"), [  # 360 px with scripts: test_access.py
    (360, "off"), *(pytest.param(width_px, scripts, marks=pytest.mark.endurance) for width_px in (768, 1280) for scripts in ("on", "off"))])
def test_no_page_scrolls_sideways(driver, site, address, width_px, scripts):
    resize(driver, width_px)
    try:
        for page in pages(site):
            if scripts == "on":
                open_page(driver, address + page)
                assert not driver.execute_script(OVERFLOW), page
            else:
                with scripts_off(driver):
                    driver.get(address + page)
                    assert not driver.execute_script(OVERFLOW), page
    finally:
        resize(driver, 1280)


@pytest.mark.endurance
def test_figures_follow_the_window(driver, site, address):
    widths = "return [...document.querySelectorAll('.tlb-fluid svg')].map(svg => svg.clientWidth)"
    followed = 0
    for page in pages_with_figures(site):
        open_page(driver, address + page)
        wide = driver.execute_script(widths)
        resize(driver, 390)
        try:
            WebDriverWait(driver, 5).until(lambda d: all(width < 390 for width in d.execute_script(widths)))
            assert not driver.execute_script(OVERFLOW), page
        finally:
            resize(driver, 1280)
        followed += sum(width >= 390 for width in wide)
    assert followed


# Text and the background behind it, as "rgb(…)" each, for all text that is drawn in a figure or a verdict.
TEXT_COLOURS = """
document.documentElement.dataset.theme = arguments[0];
const behind = element => {
  const colour = getComputedStyle(element).backgroundColor;
  return /, 0\\)$|transparent/.test(colour) && element.parentElement ? behind(element.parentElement) : colour;
};
return [...document.querySelectorAll(".tlb-chart svg text, .tlb-verdict, .tlb-source, .tlb-predicate summary, .tlb-lacking p, " +
                               "figcaption span, .highlight pre, .highlight pre span")]
  .filter(element => element.textContent.trim())
  .map(element => {
    const style = getComputedStyle(element);
    return [element.textContent, element.ownerSVGElement ? style.fill : style.color, behind(element)];
  });
"""


def hexadecimal(colour: str) -> str:
    """ "#rrggbb" of an opaque "rgb(r, g, b)"."""
    assert re.fullmatch(r"rgb\(\d+, \d+, \d+\)", colour), f"{colour} is not opaque"
    return "#" + "".join(f"{int(part):02x}" for part in re.findall(r"\d+", colour))


@pytest.mark.parametrize("scripts", ["on", "off"])
@pytest.mark.endurance
def test_text_in_figures_stands_out_from_the_page(driver, site, address, scripts):
    backgrounds = {"light": set(), "dark": set()}
    for page in pages_with_figures(site):
        with nullcontext() if scripts == "on" else scripts_off(driver):
            (open_page if scripts == "on" else webdriver.Chrome.get)(driver, address + page)
            colours = {theme: driver.execute_script(TEXT_COLOURS, theme) for theme in backgrounds}
        for theme, texts in colours.items():
            assert texts
            for text, colour, behind in texts:
                assert contrast(hexadecimal(colour), hexadecimal(behind)) >= 4.5, f"{page}: {text!r}"
                backgrounds[theme].add(hexadecimal(behind))
    assert all((contrast(behind, "#ffffff") > 10) == (theme == "dark") for theme, seen in backgrounds.items() for behind in seen)


def test_the_reader_can_choose_the_dark_page(driver, site, address):
    open_page(driver, address + pages_with_figures(site)[0])
    seen = set()
    for _ in range(3):
        driver.find_element(By.CSS_SELECTOR, ".theme-switch-button").click()
        seen.add(driver.execute_script("return document.documentElement.dataset.theme"))
    driver.execute_script("localStorage.clear()")
    assert seen == {"light", "dark"}


def test_paper_is_white_whatever_the_screen_is(driver, site, address):
    open_page(driver, address + pages_with_figures(site)[0])
    driver.execute_script("""
        const root = document.documentElement;
        root.dataset.theme = "dark";
        addEventListener("beforeprint", () => { window.printed = root.dataset.theme; });""")
    driver.execute_cdp_cmd("Page.printToPDF", {})
    seen = driver.execute_script("return [printed, document.documentElement.dataset.theme]")
    assert seen == ["light", "dark"]


# --- the page for a wrong address ---


def test_a_wrong_address_at_any_depth_leads_back(driver, site, address):
    for wrong in ("nothing.html", "book/nothing.html", "a/b/c/nothing"):
        with pytest.raises(urllib.error.HTTPError) as answer:
            urllib.request.urlopen(address + wrong)
        assert answer.value.code == 404
        open_page(driver, address + wrong)
        links = [link.get_attribute("href") for link in driver.find_elements(By.TAG_NAME, "a")]
        assert len(links) >= 2 and any("search.html" in link for link in links)
        for link in links:
            assert urllib.request.urlopen(link).status == 200
        driver.find_element(By.NAME, "q").send_keys("load")
        driver.find_element(By.TAG_NAME, "button").click()
        WebDriverWait(driver, 10).until(lambda d: "search.html?q=load" in d.current_url)


# --- books made for a test ---


def stage(folder: Path, *cells: nbformat.NotebookNode) -> Path:
    """A staged copy of the book with a page of one's own, as `make book` stages a machine's chapters."""
    for name in ("assets", "_ext"):
        shutil.copytree(ROOT / "book" / name, folder / "book" / name)
    shutil.copy(ROOT / "_config.yml", folder)
    (folder / "_toc.yml").write_text("format: jb-book\nroot: book/index\n")
    (folder / "book/references.bib").write_text("@misc{one, title={One}, author={A}, year={2000}}\n")
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    nbformat.write(nbformat.v4.new_notebook(cells=list(cells)), folder / "book/index.ipynb")
    return folder


def said(text: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_markdown_cell(text)


def shown(thing: object, name: str | None = None) -> nbformat.NotebookNode:
    """A cell that has shown `thing`; with a name, a cell that has only glued it."""
    bundle = {"text/plain": repr(thing)} if isinstance(thing, str) else thing._repr_mimebundle_()
    metadata = {"scrapbook": {"name": name, "mime_prefix": ""}} if name else {}
    output = nbformat.v4.new_output("display_data", data=bundle, metadata=metadata)
    tags = ["remove-cell" if name else "remove-input"]
    return nbformat.v4.new_code_cell("…", outputs=[output], metadata={"tags": tags})


@pytest.fixture(scope="module")
def made_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The html folder of a book with hostile texts in all places, and a chart of two charts."""
    frame = pd.DataFrame({
        "working_set_bytes": [2**16, 2**20], "ns_per_access": [1.5, 17.25], "layout": [HOSTILE, "packed"],
    })
    half = alt.Chart(frame, width=300).mark_point().encode(x="working_set_bytes:Q", y="ns_per_access:Q")
    folder = tmp_path_factory.mktemp("made")
    source = stage(
        folder / "source",
        said("# A hostile book"),
        shown(figure("hostile", frame, title=HOSTILE, alt_text=HOSTILE), "fig"),
        shown(HOSTILE, "machine"),
        said("```{glue:figure} fig\n:name: fig-hostile\n\nMeasured on {glue:text}`machine`, as said.\n```"),
        shown(verdict_table([Verdict(Claim("hostile", "one", HOSTILE, stage, None), "holds", HOSTILE)])),  # type: ignore[arg-type]
        shown(lacking_note(HOSTILE)),
        shown(data_table(pd.DataFrame({HOSTILE: [HOSTILE]}))),
        shown(Figure(half | half, "Two charts, one beside the other.", frame, "two")),
    )
    settings = (source / "_config.yml").read_text(encoding="utf-8")
    (source / "_config.yml").write_text(re.sub(r'^  url: ""', f'  url: "{REPOSITORY}"', settings, flags=re.MULTILINE), encoding="utf-8")
    return build_site(source, folder / "out").parent


@pytest.fixture(scope="module")
def made_book(made_site: Path) -> Iterator[str]:
    """The address of that book's page."""
    with served(made_site) as address:
        yield address + "book/index.html"


def test_the_repository_is_linked_where_it_is_set_and_only_there(site, made_site):
    assert soup(made_site / "book/index.html").select(f'.article-header-buttons a[href="{REPOSITORY}"]')
    assert "Source repository" not in (site / "book/index.html").read_text(encoding="utf-8")


def test_hostile_names_titles_and_data_stay_text(driver, made_book):
    open_page(driver, made_book)
    assert not errors(driver)
    page = driver.find_element(By.TAG_NAME, "main")
    assert page.text.count("window.pwned=1</script>") >= 6  # the texts are there, as texts
    hovered = tooltip(driver, driver.find_element(By.CSS_SELECTOR, "#fig-hostile .tlb-figure"))
    assert "&lt;script&gt;" in hovered and "<script" not in hovered and "<img" not in hovered
    assert not page.find_elements(By.CSS_SELECTOR, "img[src='x']")
    assert driver.execute_script("return typeof window.pwned") == "undefined"


def test_a_composed_chart_keeps_its_width_and_scrolls_in_its_frame(driver, made_book):
    resize(driver, 390)
    try:
        open_page(driver, made_book)
        chart = driver.find_element(By.CSS_SELECTOR, "#tlb-figure-two[data-state=interactive] .tlb-chart")
        assert driver.execute_script("return arguments[0].scrollWidth > arguments[0].clientWidth", chart)
        assert not driver.execute_script(OVERFLOW)
    finally:
        resize(driver, 1280)


def test_a_chart_that_fails_leaves_the_static_one(driver, made_site, made_book):
    page = (made_site / "book/index.html").read_text(encoding="utf-8")
    away = '{"mark": "point", "data": {"url": "data.csv"}, "encoding": {"x": {"field": "x"}}}'
    broken, count = re.subn(r'(class="tlb-spec">).*?(</script>)', rf"\1{away}\2", page)
    assert count == 2
    (made_site / "book/broken.html").write_text(broken, encoding="utf-8")
    open_page(driver, made_book.replace("index", "broken"))
    assert len(driver.find_elements(By.CSS_SELECTOR, "[data-state=static] .tlb-chart > svg:only-child")) == 2
    assert sum("stays static" in error for error in errors(driver)) == 2
    assert not [url for url in requests(driver) if "data.csv" in url]


@pytest.mark.endurance
def test_what_a_page_lacks_stops_the_build_and_is_told_with_its_page_and_line(tmp_path):
    """Of one build, which goes on to the end: a missing page, section, figure, source of a number, and reference."""
    lacking = ["[a chapter](missing_chapter.ipynb)", "[a section](#missing_section)", "{numref}`missing_figure`", "{cite}`missing_source`",
               "{glue:text}`missing_number`", "```{glue:figure} missing_chart\n```"]
    source = stage(tmp_path / "source", said("# A page"), *(said(f"Two lines.\n\n{thing}") for thing in lacking))
    with pytest.raises(SiteError) as error:
        build_site(source, tmp_path / "out")
    for cell, thing in enumerate(lacking, start=2):
        name = re.search(r"missing_\w+", thing)[0]
        # myst_nb counts a notebook's lines from 10,000 times the cell
        assert re.search(rf"index\.ipynb:{cell}0004: .*{name}", str(error.value)), name


@pytest.mark.endurance
def test_two_builds_are_the_same_bytes(tmp_path):
    source = stage(tmp_path / "source", said("# A page\n\n$a^2$"), shown(figure()))
    left_over = tmp_path / "two/_build/html/old.html"
    left_over.parent.mkdir(parents=True)
    left_over.write_text("a page of an older book")
    first, second = (build_site(source, tmp_path / name).parent for name in ("one", "two"))
    files = {path.relative_to(first) for path in first.rglob("*") if path.is_file()}
    assert files == {path.relative_to(second) for path in second.rglob("*") if path.is_file()}
    assert not [name for name in files if (first / name).read_bytes() != (second / name).read_bytes()]


@pytest.mark.endurance
def test_a_site_that_knows_its_address_lists_its_pages_under_it(tmp_path):
    source = stage(tmp_path / "source", said("# A page\n\nIt has words."), shown(figure()))
    config = (source / "_config.yml").read_text()
    (source / "_config.yml").write_text(config.replace('baseurl: ""', "baseurl: https://example.org/a/book"))
    site = build_site(source, tmp_path / "out").parent
    page = "https://example.org/a/book/book/index.html"
    assert re.findall("<loc>(.*)</loc>", (site / "sitemap.xml").read_text()) == [page]
    assert ElementTree.parse(site / "sitemap.xml").getroot().tag == "{http://www.sitemaps.org/schemas/sitemap/0.9}urlset"
    html = soup(site / "book/index.html")
    assert html.select_one("meta[property='og:url']")["content"] == page
    assert html.select_one("link[rel=canonical]")["href"] == page
    image, alt = (html.select_one(f"meta[property='og:image{part}']")["content"] for part in ("", ":alt"))
    picture = site / image.removeprefix("https://example.org/a/book/")
    assert alt == figure().alt and picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 5000
    assert "https://example.org/a/book" not in (site / "404.html").read_text()


def test_a_folder_that_holds_no_book_is_an_error_of_one_line(tmp_path):
    with pytest.raises(SiteError, match=r"^[^\n]*holds no _config\.yml[^\n]*$"):
        build_site(tmp_path, tmp_path / "out")
