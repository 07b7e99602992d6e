"""Which words of a computer's description may leave it: those of words.txt, and numbers as versions
and models have them.

A description has texts that their owner may have written: a kernel's release, a compiler's line, a
hypervisor's name for its CPU. No pattern tells the host `alma` from the distribution `alma`, so a
word leaves only if it is listed; of the others its owner is asked.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from tlb.machine import microarchitecture

_WORD = re.compile(r"[^\W_]+")
# 5.15, 8375C, 7R13, 0x1000065, E5, v4, i7, 128k, 64b, and what distributions count: no serial is as
# short, no address has one part.
_NUMBER = re.compile(
    r"[0-9]{1,5}[a-z]{0,3}[0-9]{0,2}|0x[0-9a-f]{1,8}|[a-z][0-9]{1,4}[a-z]{0,2}[0-9]{0,2}"
    r"|(?:deb|el|fc|fips|rc|al|amzn|lp|gen|cm|sp|uek|wsl|csv|x86|arch|aarch|armv)"
    r"[0-9]{1,3}(?:u[0-9]{1,2})?|[0-9]{1,3}ubuntu[0-9]{1,2}"
)
# Numbers that are more than a version together: IPv4 in dots or dashes, IPv6, MAC, UUID,
# somebody@somewhere.
_ADDRESS = re.compile(
    r"(?<![\w.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![\w.])"
    r"|(?<![0-9])(?:[0-9]{1,3}[-_]){3}[0-9]{1,3}(?![0-9])"
    r"|[0-9a-f]{0,4}:[0-9a-f]{0,4}:[0-9a-f:.]*|(?:[0-9a-f]{2}[-:.]){5}[0-9a-f]{2}"
    r"|(?:[0-9a-f]{4}\.){2}[0-9a-f]{4}"
    r"|[0-9a-f]{8}-[0-9a-f]{4}|\w@\w",
    re.IGNORECASE,
)
# 5.15.167.4-microsoft looks like an address.
_RELEASE = re.compile(r"[2-9]\.[0-9]{1,3}\.[0-9]{1,4}(?:\.[0-9]{1,4})?(?=-[A-Za-z])")
_COMMIT = re.compile(r"\([0-9a-f]{9} [0-9]{4}-[0-9]{2}-[0-9]{2}\)")  # that rustc was built from
_LISTED = Path(__file__).with_name("words.txt").read_text("ascii")
_TEXTS = [*re.sub("#.*", "", _LISTED).splitlines(), *microarchitecture.names()]
WORDS = frozenset(_WORD.findall(" ".join(_TEXTS).replace("_", " ").lower()))


def unknown(text: str, allowed: Collection[str] = ()) -> list[str]:
    """Return the words of a text that may name somebody: unlisted ones, and what looks like an
    address. allowed: words that their owner lets go, in lower case."""
    text = _COMMIT.sub("", text)
    release = _RELEASE.match(text)
    addresses = [found[0] for found in _ADDRESS.finditer(text, release.end() if release else 0)]
    words = [word for word in _WORD.findall(text) if not _is_harmless(word.lower())]
    return [word for word in addresses + words if word.lower() not in allowed]


def _is_harmless(word: str) -> bool:
    return word in WORDS or _NUMBER.fullmatch(word) is not None
