"""The built pages for a reader without eyes, mouse, colours or a wide screen."""

import pytest
from selenium import webdriver
from support.programs import made, trial
from support.site import (
    CUT_OFF,
    OVERFLOW,
    UNFOLD,
    errors,
    open_page,
    pages,
    pages_with_figures,
    requests,
    resize,
    scripts_off,
)

from experiments.overview.machines_tables import TABLE_ORDERS
from tlb.programs.reports import trial_page

# All rules of axe-core for WCAG 2.2, levels A and AA. A page's finding: the rule, the element, and
# what to do.
AXE = """
const [theme, left_out, done] = arguments;
document.documentElement.dataset.theme = theme;
axe.run(document, {
  resultTypes: ["violations"],
  runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa"],
  rules: Object.fromEntries(left_out.map((rule) => [rule, { enabled: false }])),
}).then(({ violations }) => done(violations.flatMap((rule) => rule.nodes.map((node) =>
  [rule.id, node.html.slice(0, 200), node.failureSummary].join("\\n")))),
  (error) => done([String(error)]));
"""

# The figures that are not one interactive image with words.
DEAD = """
return [...document.querySelectorAll(".tlb-figure")].filter((figure) => {
  const chart = figure.querySelector(".tlb-chart"), drawn = chart.querySelectorAll("svg");
  return figure.dataset.state !== "interactive" || chart.getAttribute("role") !== "img" ||
    !chart.getAttribute("aria-label") || drawn.length !== 1 ||
    !drawn[0].checkVisibility({ visibilityProperty: true }) ||
    drawn[0].getBoundingClientRect().height <= 100;
}).map((figure) => figure.id);
"""


def audit(driver: webdriver.Chrome, axe: str, theme: str, *left_out: str) -> list[str]:
    """What axe finds on the open page, all of whose figures have come to life."""
    assert not driver.find_elements("css selector", ".tlb-figure:not([data-state=interactive])")
    driver.execute_script(f"window.axe || (() => {{ {axe} }})()")
    return driver.execute_async_script(AXE, theme, list(left_out))


def test_no_page_has_an_error_asks_another_host_scrolls_sideways_or_shuts_a_reader_out(
    driver, site, address, axe
):
    """On a screen as wide as a phone's, where the keyboard reaches each box that scrolls."""
    resize(driver, 360)
    try:
        scrolled = 0
        for number, page in enumerate(pages(site)):
            open_page(driver, address + page)
            assert not errors(driver), page
            driver.execute_script(UNFOLD)
            assert driver.execute_script(DEAD) == [], page
            assert not [
                url for url in requests(driver) if not url.startswith((address, "data:", "blob:"))
            ], page
            assert not driver.execute_script(OVERFLOW), page
            boxes, unreachable = driver.execute_script(UNREACHABLE)
            assert unreachable == [], page
            scrolled += boxes
            # Two thirds of the time go into contrast, which is the style sheets' and so the same on
            # all: here a few pages, all below.
            assert audit(driver, axe, "light", *(["color-contrast"] if number % 6 else [])) == [], (
                page
            )
        assert scrolled
    finally:
        resize(driver, 1280)


@pytest.mark.endurance
def test_axe_finds_nothing_on_any_page_in_the_dark(driver, site, address, axe):
    for page in pages(site):
        open_page(driver, address + page)
        assert audit(driver, axe, "dark") == [], page


ORDERED = """
document.querySelector(".tlb-machines select").value = arguments[0];
const rows = [...document.querySelectorAll(".tlb-machines tbody tr")].map((row) => [
  row.getBoundingClientRect().top, Number(row.style.getPropertyValue("--" + arguments[0]))]);
return rows.sort(([one], [other]) => one - other).map(([_, place]) => place);
"""


def test_machines_stand_in_the_order_that_is_chosen_also_without_scripts(driver, address):
    with scripts_off(driver):
        driver.get(f"{address}book/machines.html")
        for order in TABLE_ORDERS:
            places = driver.execute_script(ORDERED, order.name)
            assert places == sorted(places) and len(places) > 1, order.name


def test_no_chart_cuts_off_its_words_on_a_telephone(driver, site, address):
    resize(driver, 390 + 15)  # and a scroll bar, which takes no room on a telephone
    try:
        for page in pages_with_figures(site):
            open_page(driver, address + page)
            driver.execute_script(UNFOLD)
            assert driver.execute_script(CUT_OFF) == [], page
    finally:
        resize(driver, 1280)


def test_a_page_of_its_own_shuts_no_reader_out(driver, axe, tmp_path):
    """That of `tlb try --html`, on a telephone, where its table and its figure scroll."""
    page = trial_page(trial(made(2.0), made(1.0)))
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    resize(driver, 360)
    try:
        driver.get((tmp_path / "page.html").as_uri())
        driver.execute_script(f"(() => {{ {axe} }})()")
        assert driver.find_elements("css selector", "figure svg")
        assert driver.execute_async_script(AXE, "light", []) == []
        assert not driver.execute_script(OVERFLOW)
        assert driver.execute_script(UNREACHABLE)[1] == []
    finally:
        resize(driver, 1280)


# What scrolls in a box of its own and cannot be reached by keyboard, or does not say what it is;
# what can be pressed and not be reached.
UNREACHABLE = """
const seen = (element) => element.checkVisibility({ visibilityProperty: true });
const scrolls = (box) => box.scrollWidth > box.clientWidth &&
  /auto|scroll/.test(getComputedStyle(box).overflowX);
const all = (selector) => [...document.querySelectorAll(selector)].filter(seen);
const boxes = all("main, main *").filter(scrolls);
const pressed = all("a[href], button, input, select, summary, [onclick]");
const closed = boxes.filter((box) => box.tabIndex < 0 || !box.getAttribute("aria-label"));
return [boxes.length, [...closed, ...pressed.filter((it) => it.tabIndex < 0)]
  .map((element) => element.outerHTML.slice(0, 150))];
"""


# Where the focus is, among what can be pressed, and whether it can be seen to be there.
FOCUSED = """
const element = document.activeElement, style = getComputedStyle(element);
const marked = style.opacity > 0.5 && (style.outlineStyle !== "none" || style.boxShadow !== "none");
return [[...document.querySelectorAll(arguments[0])].indexOf(element), marked,
        element.outerHTML.slice(0, 150)];
"""
PRESSED = 'main article :is(a[href], button, input, select, summary, [tabindex="0"])'


def press(driver: webdriver.Chrome, key: str, code: int, text: str = "") -> None:
    for kind in ("keyDown", "keyUp"):
        driver.execute_cdp_cmd(
            "Input.dispatchKeyEvent",
            {"type": kind, "key": key, "windowsVirtualKeyCode": code, "text": text},
        )


def test_the_keyboard_reaches_all_in_order_shows_where_it_is_and_opens_what_is_folded(
    driver, site, address
):
    open_page(driver, address + "book/hugepages.html")
    wanted = driver.execute_script(
        "return [...document.querySelectorAll(arguments[0])].flatMap((it, k) =>"
        "it.checkVisibility({ visibilityProperty: true }) ? [k] : [])",
        PRESSED,
    )
    driver.execute_script(
        "document.querySelectorAll(arguments[0])[arguments[1]].focus()", PRESSED, wanted[0]
    )
    reached = []
    for _ in wanted:
        place, shown, element = driver.execute_script(FOCUSED, PRESSED)
        assert shown, element
        reached.append(place)
        press(driver, "Tab", 9)
    assert reached == wanted
    fold = driver.find_element("css selector", "main details:not([open]) > summary")
    driver.execute_script("arguments[0].focus()", fold)
    press(driver, "Enter", 13, "\r")
    assert driver.execute_script("return arguments[0].parentElement.open", fold)
