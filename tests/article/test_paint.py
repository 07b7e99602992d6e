"""The watch on a page's first figure; how long it takes is `tlb bench`'s."""

from __future__ import annotations

import gzip
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from selenium.common.exceptions import TimeoutException
from support.site import open_page

from experiments.article import paint

LATE = """<!DOCTYPE html><p>Text<div class="tlb-chart"></div><script>setTimeout(() => {
document.querySelector("div").innerHTML = "<svg width=9 height=9></svg>"; window.drawn = performance.now(); }, 200)</script>"""


@pytest.fixture
def address(tmp_path: Path):
    (tmp_path / "late.html").write_text(LATE, encoding="utf-8")
    (tmp_path / "none.html").write_text("<!DOCTYPE html><p>Text", encoding="utf-8")
    with paint.served(tmp_path) as address:
        yield address


def test_a_figure_is_painted_after_it_was_drawn_and_text_before(driver, address: str):
    with paint.throttled(driver):
        text_s, figure_s = paint.painted(driver, address + "late.html")
        drawn_s = driver.execute_script("return window.drawn") / 1e3
    assert 0 < text_s < drawn_s < figure_s


def test_a_page_without_a_figure_is_an_error(driver, address: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(paint, "PATIENCE_S", 0.5)
    with paint.throttled(driver), pytest.raises(TimeoutException):
        paint.painted(driver, address + "none.html")


def test_the_browser_is_as_fast_and_as_blind_afterwards(driver, address: str):
    with paint.throttled(driver):
        pass
    open_page(driver, address + "late.html")
    assert driver.execute_script("return window.figurePainted") is None


def test_pages_travel_compressed(address: str):
    asked = urllib.request.urlopen(address + "late.html")
    assert asked.headers["Content-Encoding"] == "gzip" and gzip.decompress(asked.read()).decode() == LATE
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(address + "nothing.html")
