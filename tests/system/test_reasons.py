"""Reasons: every code that the source uses has its sentence and its remedy, fit to be shown to a
person."""

import ast
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.common import ROOT

from tlb.system.reasons import REASON_TEXTS, UNDECIDED_TEXTS, Unavailable, none_if_unavailable


def codes_in_python(path: Path) -> set[str]:
    """Literal first arguments of Unavailable(...) and explain_reason(...), the third of require_nonempty(...), and
    literal reason=... anywhere."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = getattr(node.func, "id", getattr(node.func, "attr", ""))
        wanted = (
            node.args[:1]
            if called in ("Unavailable", "explain_reason", "unavailable")
            else node.args[2:3]
            if called == "require_nonempty"
            else []
        )
        wanted += [word.value for word in node.keywords if word.arg == "reason"]
        found |= {
            arg.value
            for arg in wanted
            if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
        }
    return found


def codes_in_c(path: Path) -> set[str]:
    """unavailable("code", ...) and the ready-made {"reason": "code"} of the signal handlers."""
    text = path.read_text()
    return set(re.findall(r'\bunavailable\("([^"]+)"', text)) | set(
        re.findall(r'\\"reason\\": \\"([a-z0-9-]+)\\"', text)
    )


def test_every_code_in_the_source_has_a_sentence_and_a_remedy():
    used = {}
    for folder in ("tlb", "experiments", "kernels"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            used |= dict.fromkeys(codes_in_python(path), path.name)
        for path in sorted((ROOT / folder).rglob("*.[ch]")):
            used |= dict.fromkeys(codes_in_c(path), path.name)
    assert {
        "no-geometry",
        "no-step",
        "thp-never",
        "kernel-failed",
    } <= used.keys()  # the walk sees each room, and C
    assert {
        code: file for code, file in used.items() if code not in REASON_TEXTS | UNDECIDED_TEXTS
    } == {}


def test_each_reason_is_one_line_of_two_sentences():
    for code, reason in REASON_TEXTS.items():
        assert re.fullmatch(r"[a-z][a-z0-9-]{1,31}", code)
        assert all(
            text.strip() == text and len(text) > 10 and text.isprintable() and text.endswith(".")
            for text in reason
        ), code
        assert str(Unavailable(code)) == f"{reason.sentence} {reason.remedy}"


@given(st.sampled_from(sorted(REASON_TEXTS)), st.text())
def test_any_detail_leaves_one_line_of_bounded_length(code, detail):
    text = str(Unavailable(code, detail))
    assert len(text.splitlines()) == 1 and len(text) < 800
    assert REASON_TEXTS[code].remedy in text


def test_what_is_unavailable_is_none_and_an_error_stays_one():
    def needs(number: int) -> int:
        if number < 0:
            raise Unavailable("no-data")
        return 12 // number

    assert [none_if_unavailable(needs, number) for number in (3, -1)] == [4, None]
    with pytest.raises(ZeroDivisionError):
        none_if_unavailable(needs, 0)
