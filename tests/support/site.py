"""What tests of the built site share: a host on the loopback interface, its pages, and a browser's
way through them."""

import functools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from bs4 import BeautifulSoup
from selenium import webdriver
from selenium.common.exceptions import JavascriptException, MoveTargetOutOfBoundsException
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from support.common import LONG_S


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder as a host would: 404.html for what is missing, no eval, no other origin."""

    def end_headers(self) -> None:
        self.send_header(
            "Content-Security-Policy",
            "default-src 'self' data:; script-src 'self' 'unsafe-inline'; "
            "style-src 'self' 'unsafe-inline'",
        )
        super().end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        body = (Path(self.directory) / "404.html").read_bytes()
        self.send_response(code, message)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on a free port of the loopback interface; give its address, with a slash."""
    handler = functools.partial(Handler, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def resize(driver: webdriver.Chrome, width_px: int) -> None:
    screen = {"width": width_px, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)


def open_page(driver: webdriver.Chrome, url: str) -> None:
    """Open a page and wait until its figures have become what they become."""
    driver.get_log("browser"), driver.get_log("performance")  # forget the pages before
    driver.get(url)
    settled = (
        "return document.readyState === 'complete' && "
        "[...document.querySelectorAll('.tlb-figure')].every("
        "figure => figure.dataset.state)"
    )
    WebDriverWait(driver, LONG_S, poll_frequency=0.05).until(lambda d: d.execute_script(settled))


# Open what a reader would have to, to see a figure.
UNFOLD = """
for (const fold of document.querySelectorAll("details:has(.tlb-figure, .tlb-model)"))
  fold.open = true;
"""


@contextmanager
def scripts_off(driver: webdriver.Chrome) -> Iterator[None]:
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        yield
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def errors(driver: webdriver.Chrome) -> list[str]:
    """What the console complains about since the page was opened."""
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] != "INFO"]


def requests(driver: webdriver.Chrome) -> set[str]:
    """The URLs that the page asked for, whether it got them or not."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = (
        message["params"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    )
    return {params["request"]["url"] for params in sent}


def pages(site: Path) -> list[str]:
    """All pages, as paths below the site's root."""
    found = sorted(page.relative_to(site).as_posix() for page in site.rglob("*.html"))
    return [
        page for page in found if not page.startswith("_static/")
    ]  # templates that the theme left there


@functools.cache
def soup(page: Path) -> BeautifulSoup:
    """A page as it was built, read once for all tests: none changes it."""
    return BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")


def pages_with_figures(site: Path) -> list[str]:
    found = [page for page in pages(site) if soup(site / page).select(".tlb-figure")]
    assert found, "the site has no figure at all"
    return found


# The boxes around the text that are wider inside than outside. (A visible overflow is a note in the
# margin.)
OVERFLOW = """
return [document.documentElement, document.body,
        ...document.querySelectorAll(".bd-article-container, main")]
  .filter(box => box.scrollWidth > innerWidth ||
    box.scrollWidth > box.clientWidth && getComputedStyle(box).overflowX !== "visible")
  .map(box => `${box.tagName}.${box.className}: ${box.scrollWidth} > ${box.clientWidth}`)
"""

# The words of charts that their picture cuts off.
CUT_OFF = """
const ends = box => { const {left, right} = box.getBoundingClientRect(); return [left, right]; };
return [...document.querySelectorAll(".tlb-figure svg text")].filter(text => {
  const [left, right] = ends(text), [first, last] = ends(text.ownerSVGElement);
  return right > left && (left < first - 1 || right > last + 1);
}).map(text => text.textContent)
"""


def tooltip(driver: webdriver.Chrome, found: WebElement) -> str:
    """The HTML of the tooltip at the first mark that has one, or nothing."""
    driver.execute_script(
        "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", found
    )
    for mark in found.find_elements(
        By.CSS_SELECTOR, ".role-mark:is(.mark-symbol, .mark-rect) path"
    )[:12]:
        try:
            ActionChains(driver, duration=0).move_to_element(mark).perform()
        except (MoveTargetOutOfBoundsException, JavascriptException):
            continue
        shown = driver.find_elements(By.CSS_SELECTOR, "#vg-tooltip-element.visible")
        if shown and shown[0].is_displayed():
            return shown[0].get_attribute("innerHTML")
    return ""
