"""The built site in a browser: offline, free of errors, readable without scripts, on any screen, by night.

The site is built from the checkout; TLB_SITE names the html folder of one that is already built. Without
Chromium these tests are skipped on a person's machine and fail where CI is "true".
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from contextlib import nullcontext

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait
from support.pages import contrast
from support.site import OVERFLOW, errors, open_page, pages, pages_with_figures, requests, resize, scripts_off, soup, tooltip

from experiments.system import files

ROOT = files.ROOT
REPOSITORY = "https://github.com/somebody/every-load"
HOSTILE = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=1>"


@pytest.mark.parametrize("each", [4, pytest.param(1, marks=pytest.mark.endurance)])  # pages differ in what they show, not in how they load
def test_a_page_opened_as_a_file_works_as_well(driver, site, each):
    for page in pages(site)[::each]:
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
