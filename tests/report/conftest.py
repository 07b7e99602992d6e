"""The built site, and a browser to open it in: once for all tests of pages, which run in one
process."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from support.campaigns import put
from support.chapter import CHAPTER
from support.common import LONG_S, ROOT, lacking, make_record
from support.site import resize, served
from support.synthetic import Stated, Truth, frame, grid

from tlb.measure.perf_stat import NO_COUNTERS
from tlb.measure.store import Store
from tlb.report import chapter as chapters
from tlb.report.publish import build_site


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """The html folder of the whole site."""
    if built := os.environ.get("TLB_SITE"):
        return Path(built).resolve()
    return build_site(ROOT, tmp_path_factory.mktemp("site")).parent


@pytest.fixture(scope="session")
def address(site) -> Iterator[str]:
    with served(site) as address:
        yield address


@pytest.fixture(scope="session")
def driver(tmp_path_factory) -> Iterator[webdriver.Chrome]:
    programs = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    if missing := [name for name, path in programs.items() if path is None]:
        lacking(" and ".join(missing))
    options = webdriver.ChromeOptions()
    options.binary_location = programs["chromium"]
    for flag in (
        *("headless=new", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run"),
        *("disable-background-networking", "disable-component-update", "disable-sync"),
        f"user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(
        options=options, service=Service(executable_path=programs["chromedriver"])
    )
    for limit in (driver.set_page_load_timeout, driver.set_script_timeout):
        limit(LONG_S)
    resize(driver, 1280)
    yield driver
    driver.quit()


@pytest.fixture(scope="session")
def axe() -> str:
    """axe-core as a script, of the version and the digest in package-lock.json; npm fetches it
    once, as pip did with .venv."""
    lock, kept = ROOT / "package-lock.json", ROOT / "node_modules/.package-lock.json"
    if not kept.exists() or kept.stat().st_mtime < lock.stat().st_mtime:
        if shutil.which("npm") is None:
            lacking("npm")
        fetched = subprocess.run(["npm", "ci"], cwd=ROOT, capture_output=True, text=True)
        if fetched.returncode:
            lacking(f"axe-core, of which npm said {fetched.stderr!r},")
    return (ROOT / "node_modules/axe-core/axe.min.js").read_text(encoding="utf-8")


# --- a chapter's computer and its rows


@pytest.fixture
def data(tmp_path, monkeypatch) -> Path:
    """An empty data/ of the test's own."""
    monkeypatch.setenv("TLB_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def world(data, monkeypatch) -> dict[str, Any]:
    """This computer is what `host` says, and has no counters."""
    stated: dict[str, Any] = {"host": Stated().host()}
    monkeypatch.setattr(chapters.hosts, "inspect_machine", lambda: stated["host"])
    monkeypatch.setattr(
        "tlb.measure.measuring_setup.perf.plan",
        lambda *_, **__: replace(NO_COUNTERS, lacking={"core_cycles": "no-pmu"}),
    )
    return stated


@pytest.fixture
def committed(data) -> Store:
    """A store whose reference machine has the rows of a made-up one."""
    store = Store(data)
    store.write_machine("made-up", Stated().host().model_dump(mode="json"))
    rows = frame(Truth(), grid(1 << 20), repeats=1)
    put(store, "made-up", CHAPTER, *(make_record(**row) for row in rows.to_dict("records")))
    (data / "reference").write_text("made-up\n")
    return store
