"""The models to play with: what a page shows without scripts is where each begins, and what they
answer agrees with closed forms."""

import re

import pytest
from bs4 import BeautifulSoup
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select
from support.site import UNFOLD, errors, open_page, pages, soup

SET = """const [field, value] = arguments; field.value = value;
field.dispatchEvent(new Event("input", { bubbles: true }));"""


def models(site) -> dict[str, str]:
    """Return name -> a page that has the model."""
    return {
        model["data-model"]: page
        for page in pages(site)
        for model in soup(site / page).select(".tlb-model")
    }


@pytest.fixture
def opened(driver, site, address):
    """Open the page of a model; return what sets its controls and reads its answer."""

    def open_model(name: str):
        open_page(driver, address + models(site)[name])
        driver.execute_script(UNFOLD)
        model = driver.find_element(By.CSS_SELECTOR, f'.tlb-model[data-model="{name}"]')

        def answer(**values: object) -> str:
            for control, value in values.items():
                field = model.find_element(By.NAME, control)
                if field.tag_name == "select":
                    Select(field).select_by_value(str(value))
                else:
                    driver.execute_script(SET, field, value)
            return model.find_element(By.TAG_NAME, "output").text

        return answer

    yield open_model
    assert not errors(driver)


def test_each_begins_where_its_page_shows_it_without_scripts(driver, site, address):
    shapes = "return [...document.querySelectorAll('.tlb-model')].map(m => m.querySelector('svg').outerHTML)"
    found = models(site)
    assert set(found) == {"tlb", "walk", "lanes"}
    for page in set(found.values()):
        still = [model.svg for model in soup(site / page).select(".tlb-model")]
        open_page(driver, address + page)
        live = [BeautifulSoup(drawn, "html.parser").svg for drawn in driver.execute_script(shapes)]
        assert [str(drawn) for drawn in still] == [str(drawn) for drawn in live]


def test_a_walk_takes_as_many_references_as_its_levels_say(opened):
    answer, levels = opened("walk"), {"4k": 4, "2m": 3, "1g": 2}
    for guest, own in levels.items():
        assert answer(kind="native", guest=guest, cached="cold", step=24).startswith(
            f"{own} of {own} "
        )
        for host, theirs in levels.items():
            # Each of the guest's entries, and the data, is at a guest-physical address.
            all_of_them = (own + 1) * (theirs + 1) - 1
            said = answer(kind="nested", guest=guest, host=host, cached="cold", step=24)
            assert said.startswith(f"{all_of_them} of {all_of_them} ")


def test_a_cycle_misses_as_lru_has_it(opened):
    answer = opened("tlb")
    share = {}
    for pages_visited in (16, 17, 32, 48):
        said = answer(sets=1, ways=16, policy="lru", order="cycle", pages=pages_visited)
        share[pages_visited] = int(re.search(r"(\d+)% of visits", said)[1])
    assert share == {16: 0, 17: 100, 32: 100, 48: 100}
    # Every 4th page reaches one set of four.
    said = answer(sets=4, ways=4, policy="lru", order="stride", pages=5)
    assert "100% of visits" in said


def test_loads_overlap_until_the_walkers_are_busy(opened):
    answer = opened("lanes")
    assert "every 50 ns" in answer(flight=4, walkers=6, latency=200, walk=100)
    assert "every 200 ns" in answer(flight=1, walkers=6, latency=200, walk=100)
    assert "the walker is the limit" in answer(flight=16, walkers=1, latency=200, walk=100)
