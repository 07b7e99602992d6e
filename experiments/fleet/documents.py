"""What a bundle holds beside rows: a machine's description in each of its states, and the documents of chapters, each with its model.

A document is what its model says and nothing else, written as the store writes it: so no key is there twice, no number is infinite, and
no field is there that nobody reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from experiments.chapters.code.ways import WAYS as TEXT_WAYS
from experiments.chapters.code.ways import Texts
from experiments.chapters.hugepages.languages.jmh import Jmh
from experiments.chapters.keeping_pages.languages.runtimes import Runtimes
from experiments.chapters.keeping_pages.ways import WAYS, Ways
from experiments.chapters.page_faults.kernel_side import BALLOON, KernelSide
from experiments.chapters.your_program.cases import CASES
from experiments.chapters.your_program.programs import Programs
from experiments.front.profile import Profile
from experiments.lab.columns import INT64_MAX
from experiments.lab.housekeeping import Housekeeping
from experiments.lab.toolchains import TOOLS
from experiments.machine.flags import JAVA_FLAGS, LARGE_FLAGS, Flags
from experiments.machine.flushes import Flushes
from experiments.machine.host import Host
from experiments.words.pages import PAGES
from experiments.words.reasons import REASONS, Unavailable

Model = TypeVar("Model", bound=BaseModel)

MODELS: dict[str, type[BaseModel]] = {
    "flags": Flags, "flushes": Flushes, "housekeeping": Housekeeping, "jmh": Jmh, "kernel_side": KernelSide, "runtimes": Runtimes,
    "texts": Texts, "translation": Profile, "ways": Ways, "your_program": Programs}
DESCRIPTION = re.compile(r"machine(-[0-9a-f]{12})?")
MEANS = "means"  # which a chapter adds to its document (article.chapter.Chapter.document)
# Of the form that nobody chooses: when it was measured, digests.
FORMS = {"measured_at": r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", "state": r"[0-9a-f]{12}",
         "installation": r"([0-9a-f]{16})?", "boot_id": r"([0-9a-f]{16})?", "rows": r"([0-9a-f]{16})?"}
MOST_TEXT = 300  # characters: a mitigation's line has 120, a quantity's detail up to 200
# What no text here needs and a page, a terminal or a spreadsheet might obey; beyond ASCII there are letters that look like others.
_PLAIN = re.compile(r"[ -~]*")
_MARKUP = re.compile(r"[<>&`\\]")


def written(content: Any) -> bytes:
    """As the store writes a document. ValueError for what is no JSON."""
    return json.dumps(content, indent=2, sort_keys=True, allow_nan=False).encode() + b"\n"


def parsed(name: str, content: bytes) -> dict[str, Any]:
    """A member as an object of JSON. Raises Unavailable: bundle-unsafe for what `written` does not write, bundle-foreign for texts and
    numbers that no document has."""
    try:
        told = json.loads(content)
        if not isinstance(told, dict) or written(told) != content:
            raise ValueError("it is not written as the store writes it: keys once and in order, finite numbers, no other encoding")
        for where, leaf in leaves(told):
            _check(where, leaf)
    except Unavailable as why:
        raise Unavailable(why.code, f"{name}: {why.detail}") from None
    except (ValueError, RecursionError) as why:  # what is nested too deep is a RecursionError
        raise Unavailable("bundle-unsafe", f"{name}: {plain(why) if isinstance(why, ValueError) else 'nested too deep'}") from None
    return told


def leaves(content: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Every text and number of a document, keys among them, with the key that it stands under."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield where, key
            yield from leaves(value, key)
    elif isinstance(content, list):
        for value in content:
            yield from leaves(value, where)
    else:
        yield where, content


def _check(where: str, leaf: Any) -> None:
    if isinstance(leaf, str):
        check_text(leaf)
        if where in FORMS and not re.fullmatch(FORMS[where], leaf):
            raise Unavailable("bundle-foreign", f"{where} cannot be {plain(leaf)}")
    elif leaf is not None and not abs(leaf) <= INT64_MAX:
        raise Unavailable("bundle-impossible", f"{plain(where)} is beyond 64 bits")


def check_text(text: str) -> None:
    """Raises Unavailable("bundle-unsafe") for what could do more than be read."""
    if len(text) > MOST_TEXT or not _PLAIN.fullmatch(text) or _MARKUP.search(text):
        raise Unavailable("bundle-unsafe", f"a text is too long, or has markup, control characters or others than ASCII: {plain(text)}")


def plain(text: object) -> str:
    """A stranger's text as one can print it: the beginning of it, escaped."""
    return ascii(str(text)[:80])[1:-1]


def host(name: str, content: bytes) -> Host:
    """A description. Raises Unavailable, as `parsed` does, and bundle-foreign for what is none."""
    return modelled(name, parsed(name, content), Host)


def check(name: str, content: bytes) -> None:
    """Of a document. Raises Unavailable, as `parsed` does, and bundle-foreign for what is none."""
    told = parsed(name, content)
    means = told.pop(MEANS, [])
    if not isinstance(means, list) or not all(isinstance(word, str) and re.fullmatch(r"[a-z0-9]{1,8}", word) for word in means):
        raise Unavailable("bundle-foreign", f"{name}: {MEANS}")
    modelled(name, told, MODELS[name.removesuffix(".json")])


def modelled(name: str, told: dict[str, Any], kind: type[Model]) -> Model:
    """What a model makes of it, which is what stands there: nothing is made a number on the way, or left out."""
    try:
        made = kind.model_validate_json(json.dumps(told))
    except ValidationError as error:
        first = error.errors()[0]
        raise Unavailable("bundle-foreign", f"{name}: {plain('.'.join(map(str, first['loc'])))}: {plain(first['msg'])}") from None
    if made.model_dump(mode="json", exclude_unset=True) != told:
        raise Unavailable("bundle-foreign", f"{name}: a field is of another type")
    return made


@cache
def phrases() -> frozenset[str]:
    """Texts that documents have of this project alone: names of fields and of what they choose from, of programs and ways, of reasons."""
    schemas = [json.loads(json.dumps(kind.model_json_schema())) for kind in (*MODELS.values(), Host)]
    named = {text for schema in schemas for text in _named(schema)}
    return frozenset({MEANS, *named, *REASONS, *CASES, *WAYS, *TEXT_WAYS, *TOOLS, *BALLOON.values(), *JAVA_FLAGS, *LARGE_FLAGS,
                      *(f"{tool} {variant}" for tool in TOOLS for variant in ("plain", "huge", "pool")), *PAGES})


def _named(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from schema.get("properties", ())
        yield from (text for text in [*schema.get("enum", ()), schema.get("const")] if isinstance(text, str))
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from _named(part)
