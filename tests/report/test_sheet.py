"""The one style sheet of all pages: what it leaves out."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from tlb.system.files import ROOT

NAMES = {"shown", "open", "is-open"}


@pytest.fixture(scope="module")
def tlb_sheet() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tlb_sheet", ROOT / "book/_ext/tlb_sheet.py")
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    return module


@pytest.mark.parametrize(
    ("css", "left"),
    [
        (".shown{a:b}.other{c:d}", ".shown{a:b}"),
        (".other,.shown .x-part,p>b{a:b}", "p>b{a:b}"),
        (".shown.open:hover,.open.other{a:b}", ".shown.open:hover{a:b}"),
        (
            ":not(.other)>a,:is(.other,.shown){a:b}",
            ":not(.other)>a,:is(.other,.shown){a:b}",
        ),  # may match without it
        ('a[title=".other,}"],.other{a:b}', 'a[title=".other,}"]{a:b}'),
        (
            "@media print{.other{a:b}}@media (min-width:1px){.other{a:b}.shown{c:d}}",
            "@media (min-width:1px){.shown{c:d}}",
        ),
        ("@font-face{font-family:X;src:url(x.woff)}", "@font-face{font-family:X;src:url(x.woff)}"),
        (r".sd-col\/2,.w-1\.5{a:b}", r".sd-col\/2,.w-1\.5{a:b}"),
        ('.shown::after{content:"}.other{"}.other{a:b}', '.shown::after{content:"}.other{"}'),
        (".tip-left{a:b}.ti{a:b}", ".tip-left{a:b}"),
    ],
)
def test_a_rule_goes_where_it_names_a_class_that_nothing_has(
    tlb_sheet: ModuleType, css: str, left: str
):
    assert tlb_sheet.needed(css, NAMES, ("tip-",)).replace("\n", "") == left


def test_every_page_loads_one_sheet_that_is_there(site: Path):
    pages = [
        path
        for path in site.rglob("*.html")
        if "_static" not in path.parts and 'class="bd-main' in path.read_text(encoding="utf-8")
    ]
    sheets = {
        path: re.findall(
            r'<link[^>]*rel="stylesheet"[^>]*href="([^"]+)"', path.read_text(encoding="utf-8")
        )
        for path in pages
    }
    assert len(pages) > 15 and {len(links) for links in sheets.values()} == {1}
    assert all((path.parent / links[0]).is_file() for path, links in sheets.items())
