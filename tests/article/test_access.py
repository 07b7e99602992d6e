"""The built pages for a reader without eyes, mouse, colours, a wide screen, or patience for what moves."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium import webdriver
from support.site import errors, open_page, pages, requests

# All rules of axe-core for WCAG 2.2, levels A and AA. A page's finding: the rule, the element, and what to do.
AXE = """
const [theme, left_out, done] = arguments;
document.documentElement.dataset.theme = theme;
axe.run(document, {
  resultTypes: ["violations"],
  runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa"],
  rules: Object.fromEntries(left_out.map((rule) => [rule, { enabled: false }])),
}).then(({ violations }) => done(violations.flatMap((rule) => rule.nodes.map((node) =>
  [rule.id, node.html.slice(0, 200), node.failureSummary].join("\\n")))), (error) => done([String(error)]));
"""


def audit(driver: webdriver.Chrome, axe: str, theme: str, *left_out: str) -> list[str]:
    """What axe finds on the open page, all of whose figures have come to life."""
    assert not driver.find_elements("css selector", ".tlb-figure:not([data-state=interactive])")
    driver.execute_script(f"window.axe || (() => {{ {axe} }})()")
    return driver.execute_async_script(AXE, theme, list(left_out))


def test_no_page_has_an_error_asks_another_host_or_shuts_a_reader_out(driver, site: Path, address: str, axe: str):
    for number, page in enumerate(pages(site)):
        open_page(driver, address + page)
        assert not errors(driver), page
        assert not [url for url in requests(driver) if not url.startswith((address, "data:", "blob:"))], page
        # Two thirds of the time go into contrast, which is the style sheets' and so much the same on all: here a few pages, all below.
        assert audit(driver, axe, "light", *(["color-contrast"] if number % 6 else [])) == [], page


@pytest.mark.endurance
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_on_any_page_by_day_or_night(driver, site: Path, address: str, axe: str, theme: str):
    for page in pages(site):
        open_page(driver, address + page)
        assert audit(driver, axe, theme) == [], page


def test_axe_finds_what_is_wrong(driver, site: Path, address: str, axe: str):
    open_page(driver, address + "search.html")
    driver.execute_script("document.querySelector('main').innerHTML += '<img src=\"data:,\"><p style=\"color: #999\">Grey</p>'")
    assert {finding.partition("\n")[0] for finding in audit(driver, axe, "light")} == {"image-alt", "color-contrast"}
