"""Digests of Python functions: of what they and all that they call do, not of how it is written
down."""

from pathlib import Path

import pytest

from tlb.lab import python_code

MODULES = {
    "chase": '''"""A kernel."""

import numpy as np
from kernels.twins import arguments
from kernels.twins.shared import load as fetch, unused

PART, STEP = 4, 2


@njit(cache=True)
def follow(p, hops):
    for _ in range(hops // arguments.LINE):
        p = inner(p, STEP)
    return p


def inner(p, n):
    return fetch(p) + n


def main():
    print(follow(1, 2))
''',
    "shared": "MASK = 7\n\n\ndef load(p):\n    return p & MASK\n\n\ndef unused():\n    pass\n",
    "arguments": "LINE = 64\n\n\ndef parse():\n    return 1\n",
}


def digest(
    folder: Path,
    module: str = "",
    old: str = "",
    new: str = "",
    name: str = "follow",
    words: tuple = ("python 3",),
) -> str:
    for other, text in MODULES.items():
        assert other != module or old in text
        (folder / f"{other}.py").write_text(text.replace(old, new) if other == module else text)
    return python_code.digest(
        folder / "chase.py", [name], lambda name: folder / f"{name}.py", words
    )


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        (
            "chase",
            "def follow(p, hops):\n",
            "def follow(p, hops):\n    '''Follow so many.'''\n    # one by one\n",
        ),
        ("chase", "import numpy as np\n", ""),
        ("chase", "print(follow(1, 2))", "print(follow(3, 4))"),
        ("shared", "    pass", "    return 1"),
        ("arguments", "return 1", "return 2"),
        ("chase", "fetch(p) + n", "(fetch(p)\n            + n)"),
        ("chase", '"""A kernel."""', ""),
    ],
)
def test_how_it_is_written_and_what_it_does_not_call_change_nothing(tmp_path, module, old, new):
    assert digest(tmp_path) == digest(tmp_path, module, old, new)


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("chase", "p = inner(p, STEP)", "p = inner(p, 2)"),
        ("chase", "PART, STEP = 4, 2", "PART, STEP = 4, 3"),
        ("chase", "cache=True", ""),
        ("shared", "p & MASK", "p | MASK"),
        ("shared", "MASK = 7", "MASK = 6"),
        ("arguments", "LINE = 64", "LINE = 32"),
    ],
)
def test_what_it_does_and_what_it_calls_in_other_modules_change_it(tmp_path, module, old, new):
    assert digest(tmp_path) != digest(tmp_path, module, old, new)
