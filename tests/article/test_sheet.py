"""The one style sheet of all pages: what it leaves out, and that a browser sees no difference."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from selenium import webdriver
from support.site import open_page, resize

from experiments.system.files import ROOT

NAMES = {"shown", "open", "is-open"}
SHEETS = ("basic.css", "styles/pydata-sphinx-theme.css", "pygments.css", "styles/sphinx-book-theme.css", "mystnb.*.css", "copybutton.css",
          "sphinx-design.min.css",  # as the theme and the extensions would have them loaded, and the book's own behind them
          *yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["sphinx"]["config"]["html_css_files"])
# The computed style of every kind of element of a page and of what stands before and after it: by the sheet that is there, and by the
# original ones.
DIFFERENT = """
const still = new CSSStyleSheet(), [sheets, done] = arguments;
still.replaceSync("*, *::before, *::after { transition: none !important; animation: none !important; }");
document.adoptedStyleSheets = [still];
const kinds = {}, name = (element) => `${element?.tagName} ${element?.className}`;
const kind = (element) => `${name(element.parentElement)} > ${name(element)}`;
// Of elements alike in elements alike, the first two.
const all = [...document.body.querySelectorAll("*:not(svg *)")].filter(
  element => (kinds[kind(element)] = (kinds[kind(element)] ?? 0) + 1) < 3);
const frame = () => new Promise(requestAnimationFrame);
const styles = async () => document.fonts.ready.then(frame).then(frame).then(() => all.map(
  element => [null, "::before", "::after"].map(part => {
    const style = getComputedStyle(element, part);
    return part && style.content === "none" ? "" : [...style].filter(property => !property.startsWith("--")).map(
      property => `${property}: ${style.getPropertyValue(property)}`).join("; ");
  }).join("|")));
const linked = (address) => new Promise((loaded) => {
  const link = Object.assign(document.createElement("link"), { rel: "stylesheet", href: address, onload: loaded });
  document.head.append(link);
});
(async () => {
  const joined = await styles(), [whole] = document.querySelectorAll("link[rel=stylesheet]");
  await Promise.all(sheets.map(linked));
  whole.remove();
  document.body.offsetHeight; // laid out, which asks for fonts
  const apart = await styles();
  done([joined.length, joined.flatMap((style, n) => style === apart[n] ? [] : [`${kind(all[n])}: ${
    style.split("; ").filter((property, k) => property !== apart[n].split("; ")[k]).join("; ")}`])]);
})();
"""


@pytest.fixture(scope="module")
def tlb_sheet() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tlb_sheet", ROOT / "book/_ext/tlb_sheet.py")
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    return module


@pytest.mark.parametrize(("css", "left"), [
    (".shown{a:b}.other{c:d}", ".shown{a:b}"),
    (".other,.shown .x-part,p>b{a:b}", "p>b{a:b}"),
    (".shown.open:hover,.open.other{a:b}", ".shown.open:hover{a:b}"),
    (":not(.other)>a,:is(.other,.shown){a:b}", ":not(.other)>a,:is(.other,.shown){a:b}"),  # may match without it
    ('a[title=".other,}"],.other{a:b}', 'a[title=".other,}"]{a:b}'),
    ("@media print{.other{a:b}}@media (min-width:1px){.other{a:b}.shown{c:d}}", "@media (min-width:1px){.shown{c:d}}"),
    ("@font-face{font-family:X;src:url(x.woff)}", "@font-face{font-family:X;src:url(x.woff)}"),
    ("@keyframes other{from{a:b}to{c:d}}", "@keyframes other{from{a:b}to{c:d}}"),
    ("@layer a,b;.shown{a:b}", "@layer a,b;.shown{a:b}"),
    (".open{a:b;& .other{c:d}}", ".open{a:b;& .other{c:d}}"),
    (r".sd-col\/2,.w-1\.5{a:b}", r".sd-col\/2,.w-1\.5{a:b}"),
    ('.shown::after{content:"}.other{"}.other{a:b}', '.shown::after{content:"}.other{"}'),
    (".tip-left{a:b}.ti{a:b}", ".tip-left{a:b}"),
])
def test_a_rule_goes_where_it_names_a_class_that_nothing_has(tlb_sheet: ModuleType, css: str, left: str):
    assert tlb_sheet.needed(css, NAMES, ("tip-",)).replace("\n", "") == left


def test_names_are_the_words_of_pages_and_scripts_and_what_a_script_completes(tlb_sheet: ModuleType):
    names, stems = tlb_sheet.known(['<p class="a-b cc">'], ["el.className = `tip-${place} d-`"])
    assert {"a-b", "cc", "tip-"} <= names and stems == ("tip-",)  # two letters would complete anything


def test_addresses_are_those_of_the_sheet_s_new_place_and_imports_are_in_theirs(tlb_sheet: ModuleType, tmp_path: Path):
    (tmp_path / "styles").mkdir()
    (tmp_path / "basic.css").write_text("/* } */ .a{background:url(file.png)}")
    sheet = tmp_path / "styles" / "theme.css"
    sheet.write_text('@import "../basic.css";\n.b{background:url("../vendor/x.woff2") url(data:image/svg+xml;base64,AA)}')
    assert tlb_sheet.whole(sheet, tmp_path).split() == [
        ".a{background:url(file.png)}", '.b{background:url("vendor/x.woff2")', "url(data:image/svg+xml;base64,AA)}"]


def test_every_page_loads_one_sheet_that_is_there(site: Path):
    pages = [path for path in site.rglob("*.html") if "_static" not in path.parts and 'class="bd-main' in path.read_text(encoding="utf-8")]
    sheets = {path: re.findall(r'<link[^>]*rel="stylesheet"[^>]*href="([^"]+)"', path.read_text(encoding="utf-8")) for path in pages}
    assert len(pages) > 15 and {len(links) for links in sheets.values()} == {1}
    assert all((path.parent / links[0]).is_file() for path, links in sheets.items())


def differences(driver: webdriver.Chrome, site: Path, address: str, page: str) -> list[str]:
    open_page(driver, f"{address}{page}")
    driver.set_script_timeout(60)
    sheets = [f"{address}{next((site / '_static').glob(name)).relative_to(site)}" for name in SHEETS]
    elements, different = driver.execute_async_script(DIFFERENT, sheets)
    assert elements > 50
    return different


def test_a_browser_sees_no_difference(driver: webdriver.Chrome, site: Path, address: str):
    assert differences(driver, site, address, "search.html") == []


@pytest.mark.endurance
def test_a_browser_sees_no_difference_on_any_page_of_any_width(driver: webdriver.Chrome, site: Path, address: str):
    try:
        for width_px in (360, 1280):
            resize(driver, width_px)
            for path in sorted((site / "book").glob("*.html")):
                found = differences(driver, site, address, f"book/{path.name}")
                if found:  # once more: a chart may have been laid out anew between the two looks
                    found = differences(driver, site, address, f"book/{path.name}")
                assert found == [], (path.name, width_px)
    finally:
        resize(driver, 1280)
