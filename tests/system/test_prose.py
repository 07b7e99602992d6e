"""Words for sentences: a machine's own words made harmless."""

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tlb.system.units import escape_markdown


@given(
    st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=40)
    | st.text("*_`[](){}<>&#!|~$\\- x1.", max_size=40)
)
def test_a_machine_s_own_words_are_a_markdown_paragraph_that_reads_as_they_do(text):
    shown = MarkdownIt("commonmark").enable("table").parse(f"It is {escape_markdown(text)} here.")
    assert [token.type for token in shown] == ["paragraph_open", "inline", "paragraph_close"]
    assert {child.type for child in shown[1].children} <= {"text", "text_special"}
    assert (
        "".join(child.content for child in shown[1].children).split()
        == f"It is {text} here.".split()
    )
