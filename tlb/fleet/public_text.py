"""Which texts of a machine's description and documents may leave it, so that none names a host, a
user or a path.

A text is public if it consists of words listed in `public_words.txt`, short numbers and single
letters, or if the schema of its field has it. Of any other text only the public words are kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tlb.machine import background, microarchitecture
from tlb.measure.record import CHARACTERS_WITHOUT_MARKUP
from tlb.measure.row_tables import INT64_MAX
from tlb.system.reasons import REASON_TEXTS

UNKNOWN = "unknown"  # in the place of a text without a public word
_PLAIN = re.compile(rf"[{CHARACTERS_WITHOUT_MARKUP}]{{0,300}}")
_DIGEST = re.compile(r"([0-9a-f]{12}|[0-9a-f]{16})?")  # of a state, an installation or a boot
_ADDRESS = re.compile(
    r"(?<![0-9.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![0-9.])|[0-9a-f]{2}(?::[0-9a-f]{0,4}){3,}"
    r"|\b[a-z]{2,}-[0-9]|\S@\S|[/\\]{2}|~/|(?:^|\s)/\S"
)
_HEXADECIMAL = re.compile(r"0x[0-9a-f]{1,8}")
_LONGEST_NUMBER = 8  # digits of a word, and with its letters two more: less than a serial number
# The number of a Linux, and what in the rest of its release may be an address.
_LINUX_VERSION = re.compile(r"[2-9]\.[0-9]{1,3}(?:\.[0-9]{1,4}){0,2}(?![.0-9])")
_FOUR_NUMBERS = re.compile(r"(?:[0-9]{1,3}[.-]){3}[0-9]{1,3}(?![0-9])")


@cache
def _public_words() -> frozenset[str]:
    """Return the listed words, and those of names that this program gives by itself."""
    listed = Path(__file__).with_name("public_words.txt").read_text(encoding="ascii")
    tasks = (task.name for task in background.TASKS)
    makers = microarchitecture.ARM_IMPLEMENTERS.values()
    names = [*REASON_TEXTS, *tasks, *microarchitecture.names(), *microarchitecture.VENDORS, *makers]
    text = f"{re.sub('#.*', '', listed)} {' '.join(names)}"
    return frozenset(re.findall("[a-z]+", text.lower()))


@lru_cache(1 << 12)
def is_public_text(text: str) -> bool:
    """Return whether a text is a digest, or public words and short numbers."""
    if _DIGEST.fullmatch(text):
        return True
    if not _PLAIN.fullmatch(text) or _ADDRESS.search(text):
        return False
    return all(map(_is_public_word, re.findall(r"[a-z0-9]+", text.lower())))


def _is_public_word(word: str) -> bool:
    """Return whether a word, as "deb12u1" or "x86", has no other letters than listed words."""
    digits = sum(map(str.isdigit, word))
    is_short = not digits or (digits <= _LONGEST_NUMBER and len(word) <= _LONGEST_NUMBER + 2)
    letters = re.findall("[a-z]{2,}", word)
    is_listed = is_short and _public_words().issuperset(letters)
    return is_listed or bool(_HEXADECIMAL.fullmatch(word))


@lru_cache(1 << 8)
def keep_public_words(text: str) -> str:
    """Return a text whole if it is public, else its public words, "unknown" without any."""
    if is_public_text(text):
        return text
    words = [word for word in re.split(r'[\s():",;]+', text) if word and is_public_text(word)]
    return " ".join(dict.fromkeys(words)) or UNKNOWN


def linux_release(text: str) -> str:
    """Return a release of Linux whole if it is public, else its number."""
    number = _LINUX_VERSION.match(text)
    if number is None:
        return UNKNOWN
    rest = text[number.end() :]
    is_known = is_public_text(re.sub(r"[-+.~_]", " ", rest)) and not _FOUR_NUMBERS.search(rest)
    return text if is_known else number[0]


def public(content: Any, allowed: Collection[str], key: str = "") -> Any:
    """Return a JSON document of what may leave: fields with other names go, and numbers beyond 64
    bits become None. allowed: texts beside the public ones, such as `schema_texts`."""
    if isinstance(content, dict):
        return {
            name: public(value, allowed, name)
            for name, value in content.items()
            if name in allowed or is_public_text(name)
        }
    if isinstance(content, list):
        return [public(value, allowed, key) for value in content]
    if isinstance(content, str) and content not in allowed:
        return linux_release(content) if key == "kernel_release" else keep_public_words(content)
    if isinstance(content, (int, float)) and not abs(content) <= INT64_MAX:
        return None
    return content


@cache
def schema_texts(model: type[BaseModel]) -> frozenset[str]:
    """Return the texts of a model's schema: the names of fields, and the choices of each."""
    return frozenset(re.findall(r'"((?:[^"\\]|\\.)*)"', json.dumps(model.model_json_schema())))
