"""The Sphinx side of the printed book: one page of all chapters, whose links still say which chapter they lead to."""

from __future__ import annotations

from docutils.nodes import Node
from sphinx.application import Sphinx
from sphinx.builders.singlehtml import SingleFileHTMLBuilder


class OnePage(SingleFileHTMLBuilder):
    """Sphinx's singlehtml, but for links into another chapter: they stay `#document-CHAPTER#ID`.

    Sphinx cuts the chapter off, and ids of sections and citations are the same in many chapters. experiments/article/press.py
    makes each id one of its own.
    """

    def fix_refuris(self, tree: Node) -> None:
        pass


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_builder(OnePage, override=True)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
