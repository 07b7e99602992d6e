"""When a reader on a slow telephone sees a page's first figure: a table of `tlb bench`, by the
browser's own throttling."""

from __future__ import annotations

import functools
import gzip
import statistics
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

TITLE = "First figure painted: 4x CPU, slow 4G, compressed, nothing cached (to reach: 2.5 s)"
COLUMNS = ("page", "page KiB, compressed", "first text s", "first figure s")
VISITS = 3
# What Chromium's developer tools call "Slow 4G" (once "Fast 3G"): 1.6 and 0.75 Mbit/s and 150 ms,
# each with what the tools add for throttling single requests and not packets.
SLOW_4G = {
    "offline": False,
    "latency": 150 * 3.75,
    "downloadThroughput": 1.6e6 / 8 * 0.9,
    "uploadThroughput": 0.75e6 / 8 * 0.9,
}
CPU_TIMES = 4
PATIENCE_S = 60  # a page that shows no figure then is an error
# A figure has been painted one frame after the frame in which it had a place: no frame is made
# before the style sheets are there.
WATCH = """
const look = () => {
  const figure = document.querySelector(".tlb-chart > svg");
  if (figure?.getClientRects().length) requestAnimationFrame(() => { window.figurePainted = performance.now(); });
  else requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""
PAINTED = """
const done = arguments[0], wait = () => window.figurePainted
  ? done([performance.getEntriesByName("first-contentful-paint")[0].startTime, window.figurePainted]) : setTimeout(wait, 50);
wait();
"""
_TEXT = (".html", ".css", ".js", ".svg")


class _Compressed(SimpleHTTPRequestHandler):
    """Serves a folder as a host of pages does: connections are kept, text is compressed, and once a
    file."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            return self.send_error(404)
        body = compressed(path) if path.suffix in _TEXT else path.read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(str(path)))
        self.send_header("Content-Length", str(len(body)))
        if path.suffix in _TEXT:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(body)
        return None

    def log_message(self, format: str, *args: object) -> None:
        pass


@functools.cache
def compressed(path: Path) -> bytes:
    """A file as it travels."""
    return gzip.compress(path.read_bytes())


@contextmanager
def served(folder: Path, handler: type[SimpleHTTPRequestHandler] = _Compressed) -> Iterator[str]:
    """The folder, by default compressed, on a free port of the loopback interface; gives its
    address, ending in a slash."""
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=str(folder))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def throttled(driver: Chrome) -> Iterator[None]:
    """A slow telephone, with an empty cache and an eye on the first figure of every page;
    afterwards the browser as it was."""
    ask = driver.execute_cdp_cmd
    ask("Network.enable", {})
    watch = ask("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
    for command, value in (
        ("Network.setCacheDisabled", {"cacheDisabled": True}),
        ("Network.emulateNetworkConditions", SLOW_4G),
        ("Emulation.setCPUThrottlingRate", {"rate": CPU_TIMES}),
    ):
        ask(command, value)
    try:
        yield
    finally:
        fast = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        for command, value in (
            ("Network.setCacheDisabled", {"cacheDisabled": False}),
            ("Network.emulateNetworkConditions", fast),
            ("Emulation.setCPUThrottlingRate", {"rate": 1}),
            ("Page.removeScriptToEvaluateOnNewDocument", watch),
        ):
            ask(command, value)


def painted(driver: Chrome, address: str) -> tuple[float, float]:
    """When the first text and the first figure of a page were painted, in s after it was asked for,
    in a `throttled` browser.

    selenium's TimeoutException for a page that has no figure.
    """
    driver.set_script_timeout(PATIENCE_S)
    driver.get(address)
    text_ms, figure_ms = driver.execute_async_script(PAINTED)
    return text_ms / 1e3, figure_ms / 1e3


def first_figures(site: Path) -> Iterator[tuple[str, ...]]:
    """A row a page with figures of a site's html folder, in medians of visits with nothing cached."""
    from selenium import webdriver  # of the tests, as the browser is

    options = webdriver.ChromeOptions()
    for flag in (
        "headless=new",
        "no-sandbox",
        "disable-background-networking",
        "window-size=1280,900",
    ):
        options.add_argument(f"--{flag}")
    with served(site) as address, webdriver.Chrome(options=options) as driver, throttled(driver):
        for page in sorted((site / "book").glob("*.html")):
            if b'class="tlb-chart"' in page.read_bytes():
                visits = [painted(driver, f"{address}book/{page.name}") for _ in range(VISITS)]
                text_s, figure_s = (statistics.median(times) for times in zip(*visits, strict=True))
                yield (
                    page.stem,
                    f"{len(compressed(page)) / 1024:.0f}",
                    f"{text_s:.2f}",
                    f"{figure_s:.2f}",
                )
