"""Books made for a test: hostile texts, charts that fail, what stops a build."""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import altair as alt
import nbformat
import pandas as pd
import pytest
from selenium.webdriver.common.by import By
from support.pages import figure
from support.site import errors, open_page, requests, served, tooltip

from tlb.report import publish
from tlb.report.claims import Claim
from tlb.report.page import Text
from tlb.report.publish import SiteError, build_site
from tlb.report.render import Figure, data_table
from tlb.report.verdicts import Verdict, verdict_table
from tlb.system import files
from tlb.system.reasons import Unavailable
from tlb.system.units import escape_markdown

ROOT = files.ROOT
REPOSITORY = "https://github.com/somebody/every-load"
HOSTILE = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=1>"


def stage(folder: Path, *cells: nbformat.NotebookNode) -> Path:
    """A staged copy of the book with a page of one's own, as `make book` stages a machine's
    chapters."""
    for name in ("assets", "_ext"):
        shutil.copytree(ROOT / "book" / name, folder / "book" / name)
    shutil.copy(ROOT / "_config.yml", folder)
    (folder / "_toc.yml").write_text("format: jb-book\nroot: book/index\n")
    (folder / "book/references.bib").write_text(
        "@misc{one, title={One}, author={A}, year={2000}}\n"
    )
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    nbformat.write(nbformat.v4.new_notebook(cells=list(cells)), folder / "book/index.ipynb")
    return folder


def said(text: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_markdown_cell(text)


def shown(thing: object, **figure: str) -> nbformat.NotebookNode:
    """A cell that has shown `thing`, as a figure of that name and caption."""
    output = nbformat.v4.new_output("display_data", data=thing._repr_mimebundle_())
    metadata: dict = {"tags": ["remove-input"]} | ({"mystnb": {"figure": figure}} if figure else {})
    return nbformat.v4.new_code_cell("…", outputs=[output], metadata=metadata)


@pytest.fixture(scope="module")
def made_site(tmp_path_factory) -> Path:
    """The html folder of a book with hostile texts in all places, and a chart of two charts."""
    frame = pd.DataFrame(
        {
            "working_set_bytes": [2**16, 2**20],
            "ns_per_access": [1.5, 17.25],
            "layout": [HOSTILE, "packed"],
        }
    )
    half = (
        alt.Chart(frame, width=300)
        .mark_point()
        .encode(x="working_set_bytes:Q", y="ns_per_access:Q")
    )
    folder = tmp_path_factory.mktemp("made")
    source = stage(
        folder / "source",
        said("# A hostile book"),
        shown(
            figure("hostile", frame, title=HOSTILE, alt_text=HOSTILE),
            name="fig-hostile",
            caption="Measured here.",
        ),
        shown(Text(f"Measured on {escape_markdown(HOSTILE)}.")),
        shown(
            verdict_table(
                [Verdict("holds", HOSTILE, claim=Claim("hostile", "one", HOSTILE, stage, None))]
            )
        ),
        shown(data_table(pd.DataFrame({HOSTILE: [HOSTILE]}))),
        shown(Figure(half | half, "Two charts, one beside the other.", frame, "two")),
    )
    settings = (source / "_config.yml").read_text(encoding="utf-8")
    (source / "_config.yml").write_text(
        re.sub(r'^  url: ""', f'  url: "{REPOSITORY}"', settings, flags=re.MULTILINE),
        encoding="utf-8",
    )
    return build_site(source, folder / "out").parent


@pytest.fixture(scope="module")
def made_book(made_site) -> Iterator[str]:
    """The address of that book's page."""
    with served(made_site) as address:
        yield address + "book/index.html"


def test_hostile_names_titles_and_data_stay_text(driver, made_book):
    open_page(driver, made_book)
    assert not errors(driver)
    page = driver.find_element(By.TAG_NAME, "main")
    assert page.text.count("window.pwned=1</script>") >= 6  # the texts are there, as texts
    hovered = tooltip(driver, driver.find_element(By.CSS_SELECTOR, "#fig-hostile .tlb-figure"))
    assert "&lt;script&gt;" in hovered and "<script" not in hovered and "<img" not in hovered
    assert not page.find_elements(By.CSS_SELECTOR, "img[src='x']")
    assert driver.execute_script("return typeof window.pwned") == "undefined"


def test_a_chart_that_fails_leaves_the_static_one(driver, made_site, made_book):
    page = (made_site / "book/index.html").read_text(encoding="utf-8")
    away = '{"mark": "point", "data": {"url": "data.csv"}, "encoding": {"x": {"field": "x"}}}'
    broken, count = re.subn(r'(class="tlb-spec">).*?(</script>)', rf"\1{away}\2", page)
    assert count == 2
    (made_site / "book/broken.html").write_text(broken, encoding="utf-8")
    open_page(driver, made_book.replace("index", "broken"))
    assert (
        len(
            driver.find_elements(By.CSS_SELECTOR, "[data-state=static] .tlb-chart > svg:only-child")
        )
        == 2
    )
    assert sum("stays static" in error for error in errors(driver)) == 2
    assert not [url for url in requests(driver) if "data.csv" in url]


@pytest.mark.endurance
def test_what_a_page_lacks_stops_the_build_and_is_named(tmp_path):
    lacking = ["[a](missing_chapter.ipynb)", "{numref}`missing_figure`", "{cite}`missing_source`"]
    source = stage(tmp_path / "source", *map(said, ["# A page", *lacking]))
    with pytest.raises(SiteError) as error:
        build_site(source, tmp_path / "out")
    for thing in lacking:
        name = re.search(r"missing_\w+", thing)[0]
        assert re.search(rf"index\.ipynb:\d+: .*{name}", str(error.value)), name


# Stands for Jupyter Book: copies a page, and fails as the page says.
BUILDER = """
import sys
from pathlib import Path
source, output = Path(sys.argv[2]), Path(sys.argv[4])
page = (source / "page").read_text()
html = output / "_build" / "html"
html.mkdir(parents=True)
(html / "index.html").write_text(page)
sys.exit(page if "No space" in page else page == "broken")
"""


@pytest.mark.parametrize(
    ("page", "error"),
    [("broken", SiteError), ("OSError: [Errno 28] No space left on device", Unavailable)],
)
def test_a_site_stays_until_the_next_one_is_whole(tmp_path, monkeypatch, page, error):
    monkeypatch.setattr(publish, "_JUPYTER_BOOK", [sys.executable, "-c", BUILDER])
    for name in ("_config.yml", "_toc.yml"):
        (tmp_path / name).touch()
    for text in ("first", "second"):
        (tmp_path / "page").write_text(text)
        index = build_site(tmp_path, tmp_path / "out")
        assert index.read_text() == text
    (tmp_path / "page").write_text(page)
    with pytest.raises(error):
        build_site(tmp_path, tmp_path / "out")
    assert index.read_text() == "second" and len([*index.parent.parent.iterdir()]) == 2
