"""The printed book: every chapter is in it, and its links lead somewhere."""

import re

import pytest
from pypdf import PdfReader
from support.common import lacking
from support.site import soup

from tlb.report import notebooks, publish

pytestmark = [pytest.mark.endurance, pytest.mark.site]


def test_the_printed_book_has_every_chapter_and_its_links_lead_somewhere(site, tmp_path):
    try:
        reader = PdfReader(publish.pdf(tmp_path / "new" / "book.pdf"))
    except SystemExit as why:
        lacking(str(why))
    text = "".join(re.sub(r"\s", "", page.extract_text()) for page in reader.pages)
    for name in notebooks.chapter_names_in_order():
        title = soup(site / "book" / f"{name}.html").h1.find(string=True, recursive=False)
        assert re.sub(r"\s", "", title).replace("fi", "ﬁ") in text.replace("fi", "ﬁ"), name
    annotations = [link.get_object() for page in reader.pages for link in page.get("/Annots", [])]
    inside = [link["/Dest"] for link in annotations if "/Dest" in link]
    assert len(inside) > 50 and set(inside) <= set(reader.named_destinations)
