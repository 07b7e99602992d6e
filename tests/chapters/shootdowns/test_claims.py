"""The verdict about shootdowns where its sentence is true, is not, or cannot be tested."""

from support.events import Events, analysis, rows
from support.synthetic import words_of

from experiments import shootdowns


def told(machine: Events | None = None, **about: object) -> dict[str, str]:
    a = analysis(shootdowns, rows(machine or Events()), **about)
    return words_of(shootdowns.claims, a)


def test_entries_lost_decide_and_interrupts_do_not():
    assert told() == {"page-management-slows-a-loop": "holds"}
    lost = Events(taken=0.8, interrupted=1.5)
    assert told(lost) == {"page-management-slows-a-loop": "fails"}
    a = analysis(shootdowns, rows(cpus=1), cpus=1)
    assert words_of(shootdowns.claims, a) == {"page-management-slows-a-loop": "not testable here"}
