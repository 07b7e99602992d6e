"""The built site in a browser: offline, free of errors, readable without scripts, on any screen.

The site is built from the checkout; TLB_SITE names the html folder of one that is already built.
Without Chromium these tests are skipped on a person's machine and fail where CI is "true".
"""

import json
import re
import urllib.error
import urllib.request

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait
from support.common import LONG_S
from support.site import (
    UNFOLD,
    errors,
    open_page,
    pages,
    pages_with_figures,
    requests,
    scripts_off,
    soup,
    tooltip,
)


def test_a_page_opened_as_a_file_works_as_well(driver, site):
    for page in pages(site)[::8]:  # pages differ in what they show, not in how they load
        open_page(driver, (site / page).as_uri())
        assert not errors(driver), page
        own = (site.as_uri(), "data:", "blob:")
        assert all(url.startswith(own) for url in requests(driver)), page


def test_search_finds_a_page_of_files(driver, site):
    title = soup(site / pages_with_figures(site)[0]).find("h1").find(string=True, recursive=False)
    word = max(re.findall(r"[a-z]+", title.lower()), key=len)
    open_page(driver, f"{site.as_uri()}/search.html?q={word}")
    WebDriverWait(driver, LONG_S).until(
        lambda d: d.find_elements(By.CSS_SELECTOR, "#search-results li a")
    )
    assert not errors(driver)


# What of an article cannot be seen, outside of what a reader can unfold.
HIDDEN = """
return [...document.querySelectorAll("article *")].filter((element) =>
  element.textContent.trim() && !element.checkVisibility({ visibilityProperty: true }) &&
  !element.closest("script, style, option, .headerlink, summary") &&
  !element.closest("details:not([open])"))
  .map((element) => element.outerHTML.slice(0, 150));
"""


def test_everything_shows_without_scripts(driver, site, address):
    with scripts_off(driver):
        for page in pages_with_figures(site):
            driver.get(address + page)
            assert not driver.execute_script(HIDDEN), page
            driver.execute_script(UNFOLD)
            for found in driver.find_elements(By.CSS_SELECTOR, ".tlb-figure"):
                assert found.get_attribute("data-state") is None  # no script ran
                drawn = found.find_element(By.CSS_SELECTOR, ".tlb-chart > svg")
                assert drawn.is_displayed() and drawn.size["height"] > 100, page


def test_a_figure_shows_a_value_under_the_pointer(driver, site, address):
    for page in pages_with_figures(site):
        open_page(driver, address + page)
        if any(
            tooltip(driver, found) for found in driver.find_elements(By.CSS_SELECTOR, ".tlb-figure")
        ):
            return
    pytest.fail("no figure shows a value under the pointer")


def test_the_calculator_answers_in_words_what_it_is_asked(driver, site, address):
    open_page(driver, address + "book/hugepages.html")
    figure = driver.find_element(By.ID, "tlb-figure-calculator")
    answer = figure.find_element(By.CSS_SELECTOR, "output.tlb-answer")
    assert not figure.find_elements(
        By.CSS_SELECTOR, ".tlb-chart select, .tlb-chart output"
    )  # what is in the image is not read out
    spec = json.loads(
        figure.find_element(By.CSS_SELECTOR, "script.tlb-spec").get_attribute("textContent")
    )
    params = {param["name"]: param for param in spec["params"]}
    answers, choice = params["answers"]["value"], params["pages"]["bind"]
    size, pages = (Select(found) for found in figure.find_elements(By.TAG_NAME, "select"))
    assert len(pages.options) == len(answers) > 1
    for name, label in zip(choice["options"], choice["labels"], strict=True):
        pages.select_by_visible_text(label)
        size.select_by_index(0)
        known = answers[name].values()
        WebDriverWait(driver, LONG_S).until(lambda _, known=known: answer.text in known)
        assert answer.text.startswith(f"{size.first_selected_option.text} on {label} pages: reach ")


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
        WebDriverWait(driver, LONG_S).until(lambda d: "search.html?q=load" in d.current_url)
