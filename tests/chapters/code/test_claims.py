"""The verdicts about code on machines where each sentence is true, or is not, or cannot be
tested."""

from support.code import Jumps, analysis, rows
from support.synthetic import words_of

from experiments.code import claims


def told(jumps: Jumps | None = None, **about: object) -> dict[str, str]:
    return words_of(claims, analysis(rows(jumps or Jumps()), **about))


def test_where_walks_for_code_are_dear_large_pages_help():
    found = told(Jumps(walk_ns=60.0))
    assert {found[claim] for claim in ("text-on-2-mib-helps", "hundred-mb-of-code-gains")} == {
        "holds"
    }


def test_pages_that_the_host_splinters_are_no_control():
    found = told(splintered=True)
    texts = {found[claim] for claim in ("text-on-2-mib-helps", "hundred-mb-of-code-gains")}
    assert texts == {"not testable here"}


def test_words_are_judged_as_they_are_listed():
    found = told(
        defrag_modes=["always", "defer-only-madvise"],
        java_flags=["UseTransparentHugePages", "UseLargePagesIndividualAllocation"],
    )
    assert found["defer-only-madvise-exists"] == found["published-java-flags-exist"] == "holds"
    assert told()["defer-only-madvise-exists"] == told()["published-java-flags-exist"] == "fails"
    assert told(java_on=[])["java-large-pages-off-by-default"] == "holds"
    assert told(java_on=["UseLargePages"])["java-large-pages-off-by-default"] == "fails"
    assert told()["java-large-pages-off-by-default"] == "cannot tell"
    assert told(java_flags=None)["published-java-flags-exist"] == "cannot tell"
