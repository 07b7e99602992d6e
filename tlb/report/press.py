"""Print the book: Sphinx's singlehtml on paper by Chromium, with vector figures, page numbers and
links that work inside.

What unfolds on the site (how a figure is drawn, the predicate of a claim) is left out; captions
keep its file and line.
"""

from __future__ import annotations

import base64
import io
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

import yaml
from bs4 import BeautifulSoup, Tag

from tlb.report.edition import Edition
from tlb.report.publish import SiteError, build_site
from tlb.system.files import ROOT

if TYPE_CHECKING:
    from selenium import webdriver

_TEMPLATES = ROOT / "book" / "_ext"
_SHEETS = (
    "pygments.css",
    "sphinx-design.min.css",
)  # beside our own; the others are the theme's: what they set, press.css does
_OF_A_SCREEN = "script, .headerlink, .tlb-figure-data, .tlb-predicate, details.hide, .tlb-filter, button, input, select"
_LEFT_OUT = (
    "What unfolds on the site is left out here: how figures are drawn, the predicates of claims, the cells that prepare. "
    "It stands in the repository, at the file and line that captions and claims name."
)
_DATE = re.compile(rb"(/(?:Creation|Mod)Date \(D:)\d{14}")
# as the page's number in press.css
_SMALL = 'font: 8.5pt "Liberation Sans", Arial, sans-serif; color: #46525e;'
# A4, margins and numbers are press.css's. The outline is what a reader of PDF shows beside the
# pages.
_PAPER = {
    "printBackground": True,
    "preferCSSPageSize": True,
    "generateTaggedPDF": True,
    "generateDocumentOutline": True,
}


def pdf(output: Path) -> Path:
    """Print the whole book of the committed results into `output`; the same bytes each time, as
    long as Chromium is the same.

    Raises SystemExit where there is no Chromium, SiteError where the book does not build or a link
    leads nowhere.
    """
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        raise SystemExit(
            "Printing takes Chromium and its driver (Debian, Ubuntu: apt install chromium chromium-driver fonts-liberation)."
        )
    edition = Edition.of_checkout()
    with tempfile.TemporaryDirectory() as folder:
        html = build_site(ROOT, Path(folder), "singlehtml").parent
        book = BeautifulSoup(
            (html / "book" / "index.html").read_text(encoding="utf-8"), "html.parser"
        )
        chapters, numbers = _chapters(book), {}
        while True:  # once for the pages' numbers and once with them, which moves none
            page = html / "paper.html"
            page.write_text(_paper(book, chapters, edition, numbers), encoding="utf-8")
            printed = _DATE.sub(
                rb"\g<1>" + edition.date.strftime("%Y%m%d%H%M%S").encode(), _print(page)
            )
            if numbers == (numbers := _first_pages(printed, chapters)):
                break
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(printed)
    return output


def _chapters(book: BeautifulSoup) -> dict[str, Tag]:
    """Each chapter by its name: without what works on a screen alone, its ids and links those of
    the whole book."""
    first = book.select_one("article.bd-article > section")
    marks = first.select("span[id^=document-]")
    chapters = {"index": first} | {
        mark["id"].rpartition("/")[2]: mark.find_next_sibling("section") for mark in marks
    }
    for section in list(chapters.values())[1:]:
        section.extract()
        for heading in section.find_all(re.compile("^h[2-6]$")):  # it is no part of another chapter
            heading.name = f"h{int(heading.name[1]) - 1}"
    for name, section in chapters.items():
        for part in section.select(_OF_A_SCREEN):
            part.decompose()
        for folded in section.select(".tlb-listing > details"):
            folded.replace_with(folded.select_one(".code-block-caption"))
        for folded in section.find_all("details"):
            folded["open"] = ""
        _make_ids_its_own(section, name)
    known = {
        f"#{tag['id']}" for section in chapters.values() for tag in section.find_all(id=True)
    } | {f"#{name}" for name in chapters}
    for name, section in chapters.items():
        for link in section.find_all("a", href=True):
            link["href"] = _target(link["href"], name, chapters)
            if not link["href"]:
                link.unwrap()  # to a file of the site
            elif link["href"].startswith("#") and link["href"] not in known:
                raise SiteError(
                    f"a link of {name}, '{link.get_text()}', leads to {link['href']}, which is nowhere in the printed book"
                )
    return chapters


def _make_ids_its_own(section: Tag, chapter: str) -> None:
    """Sections, figures and clips of drawings have the same ids in many chapters."""
    for tag in section.find_all(True):
        for name, value in tag.attrs.items():
            if name == "id":
                tag[name] = f"{chapter}--{value}"
            elif isinstance(value, str) and "url(#" in value:
                tag[name] = value.replace("url(#", f"url(#{chapter}--")


def _target(link: str, chapter: str, chapters: Mapping[str, Tag]) -> str:
    """Where a link of a chapter leads to in the whole book; as it is to another host, "" to what is
    on the site alone."""
    if link.startswith(("http://", "https://", "mailto:")):
        return link
    if link.startswith("#") and not link.startswith("#document-"):
        return f"#{chapter}--{link[1:]}"
    page, _, part = link.removeprefix("#document-").partition("#")
    name = page.rpartition("/")[2].removesuffix(".html")
    return (f"#{name}--{part}" if part else f"#{name}") if name in chapters else ""


def _paper(
    book: BeautifulSoup, chapters: Mapping[str, Tag], edition: Edition, numbers: Mapping[str, int]
) -> str:
    """The page that is printed: title, contents with the numbers of pages that are known, and the
    chapters."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    sheets = [
        f'<link rel="stylesheet" href="_static/{name}">'
        for name in (*_SHEETS, *config["sphinx"]["config"]["html_css_files"])
    ]
    formulas = [str(tag) for tag in book.head.find_all("script") if "mathjax" in str(tag).lower()]
    made = f"Version {edition.version}, {edition.date.day} {edition.date:%B %Y}{edition.commit and ', commit '}{edition.commit[:12]}"
    running = [
        f'@page {_page_of(name)} {{ @top-left {{ content: "{_css_text(_title(section))}"; {_SMALL} }} }}'
        for name, section in chapters.items()
    ]
    bodies = [
        f'<section class="press-chapter" id="{name}" style="page: {_page_of(name)}">{section}</section>'
        for name, section in chapters.items()
    ]
    return Template((_TEMPLATES / "press.html").read_text(encoding="utf-8")).substitute(
        language="en",
        title=escape(edition.title),
        head="\n".join([*sheets, *formulas]),
        about=escape(edition.about),
        edition=made,
        style="\n".join([(_TEMPLATES / "press.css").read_text(encoding="utf-8"), *running]),
        left_out=_LEFT_OUT,
        licence=escape(config["html"]["extra_footer"]),
        contents="\n".join(_contents(chapters, numbers)),
        chapters="\n".join(bodies),
    )


def _page_of(name: str) -> str:
    return "chapter-" + name.replace("_", "-")


def _css_text(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _title(section: Tag) -> str:
    return " ".join(section.h1.get_text().split())


def _contents(chapters: Mapping[str, Tag], numbers: Mapping[str, int]) -> Iterator[str]:
    """A list a part of the table of contents, a line a chapter."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    parts = {"": [toc["root"]]} | {
        part["caption"]: [chapter["file"] for chapter in part["chapters"]] for part in toc["parts"]
    }
    for caption, files in parts.items():
        if caption:
            yield f"<h2>{escape(caption)}</h2>"
        lines = [
            f'<li><a href="#{name}">{escape(_title(chapters[name]))}<span class="press-page">{numbers.get(name, "")}</span></a></li>'
            for name in (Path(file).name for file in files)
        ]
        yield f"<ol>{''.join(lines)}</ol>"


def _print(page: Path) -> bytes:
    """The page as PDF."""
    driver = browser(page)
    try:
        return base64.b64decode(driver.execute_cdp_cmd("Page.printToPDF", _PAPER)["data"])
    finally:
        driver.quit()


def browser(page: Path) -> webdriver.Chrome:
    """Chromium with the page open and its formulas set; whoever asks for it quits it."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in (
        "headless=new",
        "no-sandbox",
        "disable-gpu",
        "no-first-run",
        "disable-background-networking",
    ):  # the page is ours
        options.add_argument(f"--{flag}")
    driver = webdriver.Chrome(
        options=options, service=Service(executable_path=shutil.which("chromedriver"))
    )
    driver.get(page.as_uri())
    driver.execute_async_script(
        "(window.MathJax?.startup?.promise ?? Promise.resolve()).then(() => document.fonts.ready)"
        ".then(() => arguments[0]())"
    )
    return driver


def _first_pages(printed: bytes, chapters: Mapping[str, Tag]) -> dict[str, int]:
    """The number of the page that each chapter begins on, counted from 1."""
    from pypdf import PdfReader

    reader = PdfReader(io.BytesIO(printed))
    places = reader.named_destinations
    return {name: reader.get_destination_page_number(places[f"/{name}"]) + 1 for name in chapters}
