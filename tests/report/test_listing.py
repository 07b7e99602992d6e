"""The directive `listing`: the part of a file that is asked for, with its own line numbers, and a
warning for what is not there."""

import io
import re
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from sphinx.application import Sphinx
from support.common import ROOT, extension

PYTHON = '''"""A module."""

import math

LIMIT = 5  # of something


@decorated
@twice(
    over=2,
)
def first(a: int) -> int:
    # <b> & "quotes"
    return a < LIMIT


class Thing:
    """A thing."""

    size = 3

    @property
    def first(self) -> str:
        return "the thing's"


'''
C = """/* A kernel. */
#include "chase.h"
/* [timed] */
static int everything(void) { return 1; }
/* [end] */

/* [timed: plain, other way] A turn. */
static int turn(int n)
{
    return n; /* [not an end of timed: plainer] */
}
/* [end] */
/* [timed: plainer] */
int never_ended;
"""


listing = extension("tlb_markup")


def build(folder: Path, text: str) -> tuple[BeautifulSoup, str]:
    """Return the page of a book of one page, and what the build warned of it."""
    source = folder / "source"
    for name, content in {
        "index.md": text,
        "experiments/room/part.py": PYTHON,
        "kernels/one.c": C,
        "secret.py": "TOKEN = 1\n",
    }.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    warned = io.StringIO()
    settings = {
        "extensions": ["myst_parser", "sphinxcontrib.bibtex", "tlb_markup"],
        "bibtex_bibfiles": [],
        "numfig": True,
        "html_theme": "basic",
        "numfig_format": {"code-block": "Listing %s"},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "book/_ext"))
        app = Sphinx(
            source, None, folder / "out", folder / "doctrees", "html", settings, None, warned
        )
        app.builder.init()
        app.build()
    told = [line for line in warned.getvalue().splitlines() if "index.md" in line]
    return BeautifulSoup((folder / "out/index.html").read_text(), "html.parser"), "\n".join(told)


def test_a_listing_is_numbered_named_highlighted_and_says_where_it_stands(tmp_path):
    page, warned = build(
        tmp_path,
        """# A page

See {numref}`the-loop`.

```{listing} kernels/one.c other way
:name: the-loop
What is **timed**:
```

```{listing} experiments/room/part.py Thing.first
:fold:
How it is named:
```
""",
    )
    assert not warned
    loop, folded = page.select("div.tlb-listing")
    assert [found.select_one(".caption-number").text.strip() for found in (loop, folded)] == [
        "Listing 1",
        "Listing 2",
    ]
    assert loop["id"] == "the-loop" and page.select_one('a[href="#the-loop"]').text == "Listing 1"
    assert [
        found.select_one(".caption-text").text.removesuffix("¶") for found in (loop, folded)
    ] == [
        "What is timed: kernels/one.c, line 8.",
        "How it is named: experiments/room/part.py, line 22.",
    ]
    assert [int(number.text) for number in folded.select(".linenos")] == [22, 23, 24]
    assert "return n" in loop.select_one(".highlight-c pre").text and loop.select(
        ".highlight-c .kt"
    )
    assert not loop.select("details") and folded.select_one("details > summary .caption-number")
    assert folded.select_one("details > .highlight-python pre") and not folded.select_one(
        "details[open]"
    )


WRONG = [
    "experiments/room/part.py second",
    "kernels/one.c turn",
    "secret.py TOKEN",
    "experiments/../secret.py TOKEN",
]


def test_what_cannot_be_listed_is_a_warning_that_names_it(tmp_path):
    asked = "".join(f"```{{listing}} {what}\nA part:\n```\n\n" for what in WRONG)
    page, warned = build(tmp_path, f"# A page\n\n{asked}")
    for place, what in enumerate(WRONG):
        named = re.escape(what.split()[0])
        assert re.search(rf"index\.md:{3 + 4 * place}: WARNING: {named} has no part", warned)
    assert "TOKEN" not in page.text and not page.select(".tlb-listing")
