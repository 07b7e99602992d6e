"""What stands first on a page, what the search finds, and where old addresses of pages lead."""

import tarfile
import urllib.request

import nbformat
import pytest
import yaml
from docutils import nodes
from docutils.utils import new_document
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait
from support.common import LONG_S, ROOT, extension
from support.rendered import CHAPTER_NAMES
from support.site import errors, open_page

SETTINGS = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
MOVED = SETTINGS["sphinx"]["config"]["tlb_moved"]


def test_the_index_has_a_page_s_text_and_not_its_code():
    page = nodes.section("", nodes.paragraph("", "A sentence."))
    cell = nodes.container("", nodes.paragraph("", "in_a_cell"), classes=["cell_input"])
    listing = nodes.literal_block("in_a_listing", "in_a_listing")
    shown = "<p>A table</p><pre>in_a_predicate</pre><svg><text>in_a_chart</text></svg>"
    page += [cell, listing, nodes.raw("", shown, format="html")]
    text = extension("tlb_site").without_code(page).astext()
    assert "A sentence." in text and "A table" in text and "in_a_" not in text
    assert page.astext().count("in_a_") == 4


def cell(*parts: str, figure: bool = False) -> nodes.container:
    """A notebook's cell as MyST-NB makes it; parts: what the page shows of it."""
    made = nodes.container(nb_element="cell_code")
    for part in parts:
        made += nodes.container("", nodes.Text(part[10:]), nb_element=part)
    if figure:
        made[-1] += nodes.figure()
    return made


SOURCE, OUTPUT = "cell_code_source", "cell_code_output"


def first_screen(*cells: nodes.container) -> list[nodes.Node]:
    page = nodes.section("", nodes.title(), *cells, nodes.section())
    doctree = new_document("page")
    doctree += page
    extension("tlb_site").put_figure_first(None, doctree)
    assert all(node.parent is page for node in page)
    return list(page.children)


@pytest.mark.parametrize("chapter", CHAPTER_NAMES)
def test_a_chapter_s_first_figure_stands_before_its_code(chapter):
    """A figure whose code is folded stays where it is, unless it is the summary."""
    cells = nbformat.read(ROOT / "book" / f"{chapter}.ipynb", 4).cells
    tags = [cell.metadata.tags for cell in cells if "figure" in cell.metadata.get("mystnb", {})]
    assert "hide-input" not in tags[0] or any("first-figure" in each for each in tags)


def test_the_first_figure_and_its_text_stand_before_the_code_that_makes_them():
    rows, figure, folded = cell(SOURCE), cell(SOURCE, OUTPUT, figure=True), cell(SOURCE)
    text, later = cell(OUTPUT), cell(SOURCE)
    _, *found, _ = first_screen(rows, figure, folded, text, later)
    source = found[3]
    assert found == [figure, text, rows, source, folded, later]
    assert figure[0]["nb_element"] == OUTPUT and source[0]["nb_element"] == SOURCE


def test_the_code_of_the_first_figure_stands_with_the_experiment_before_the_code_that_needs_it():
    rows, figure = cell(SOURCE), cell(SOURCE, OUTPUT, figure=True)
    told, later, folded = nodes.paragraph(), cell(SOURCE), cell(SOURCE)
    folded["hide_mode"] = "input"
    mechanism = nodes.section("", nodes.title(), folded)
    experiment = nodes.section("", nodes.title(), told, later, ids=["the-experiment"])
    _, *found, _ = first_screen(rows, figure, cell(OUTPUT), mechanism, experiment)
    assert found[-2:] == [mechanism, experiment] and rows not in found
    assert experiment.children[1:3] == [told, rows] and experiment.children[-1] is later
    assert mechanism.children[1:] == [folded]


def test_a_figure_whose_code_is_folded_stays_where_it_is():
    rows, figure = cell(SOURCE), cell(SOURCE, OUTPUT, figure=True)
    figure["hide_mode"] = "input"
    assert first_screen(rows, figure)[1:3] == [rows, figure]


def test_a_figure_that_sums_up_the_sections_and_its_text_stand_first():
    summary, later, text = cell(SOURCE, OUTPUT, figure=True), cell(SOURCE), cell(OUTPUT)
    summary["classes"].append("tag_first-figure")
    first, folded, section = nodes.paragraph(), cell(SOURCE), nodes.section()
    section += [summary, later, text]
    page = nodes.section("", nodes.title(), first, folded, section)
    doctree = new_document("page")
    doctree += page
    extension("tlb_site").put_summary_first(None, doctree)
    _, _, figure, *rest = page.children
    assert rest == [text, folded, section] and section.children == [summary, later]
    assert figure.next_node(nodes.figure) and not summary.next_node(nodes.figure)


def test_a_site_without_an_address_of_its_sources_carries_them(site):
    (archive,) = site.glob("_static/*-source.tar.gz")
    page = (site / "book/index.html").read_text(encoding="utf-8")
    assert f'href="../_static/{archive.name}"' in page
    with tarfile.open(archive) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    assert names >= {"Makefile", "kernels/page_chase.c", "book/index.ipynb", "data/reference"}


def test_folded_code_of_a_section_stands_behind_its_text_and_before_the_next_section():
    shown, set_up, chart = cell(SOURCE), cell(SOURCE), cell(SOURCE, OUTPUT, figure=True)
    for folded in (set_up, chart):
        folded.attributes |= {"hide_mode": "input", "prompt_show": "Code"}
    text, below = nodes.paragraph("", "A sentence:"), nodes.section()
    page = nodes.section("", nodes.title(), set_up, shown, text, chart, below)
    doctree = new_document("page")
    doctree += page
    extension("tlb_site").gather_folded_code(None, doctree)
    _, *found, fold, last = page.children
    assert found == [shown, text, chart] and last is below
    assert [part["nb_element"] for part in chart] == [OUTPUT] and not chart.get("hide_mode")
    (code,) = fold.children
    assert fold["hide_mode"] == "input" and code["nb_element"] == SOURCE and len(code) == 4


def test_no_address_is_moved_twice():
    assert not MOVED.keys() & {*MOVED.values()}


@pytest.mark.parametrize("old", MOVED)
def test_an_old_address_leads_to_the_page_that_took_its_place(driver, site, address, old):
    if (ROOT / f"{old}.ipynb").exists():
        pytest.skip("this page is still there")
    open_page(driver, f"{address}{old}.html")
    WebDriverWait(driver, LONG_S).until(lambda d: d.current_url == f"{address}{MOVED[old]}.html")
    assert urllib.request.urlopen(driver.current_url).status == 200


def found(driver, address: str, query: str) -> list[str]:
    """Return the results of a search that finds something, the best first."""
    open_page(driver, f"{address}search.html?q={query.replace(' ', '+')}")
    WebDriverWait(driver, LONG_S).until(
        lambda d: (
            "Search finished" in d.find_element(By.ID, "search-results").text
            or d.find_elements(By.CSS_SELECTOR, "#search-results li .context")
        )
    )
    assert not errors(driver)
    return [each.text for each in driver.find_elements(By.CSS_SELECTOR, "#search-results li")]


@pytest.mark.parametrize(
    ("query", "title"),
    [
        ("tlb cliff", "The TLB cliff"),
        ("keeping huge pages", "Getting and keeping huge pages"),
        ("page faults", "Page faults"),
    ],
)
def test_a_page_whose_title_has_the_words_comes_first(driver, site, address, query, title):
    first, *_ = found(driver, address, query)
    assert title in first.splitlines()[0]
