"""The documents of a bundle beside its rows: a machine's description in each of its states, and
documents of chapters, each with its model.

A document holds only the fields of its model, and is written as the store writes it: keys once, in
order, finite numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from tlb.machine.flushes import Flushes
from tlb.machine.host import Host
from tlb.machine.java_flags import JAVA_FLAGS, LARGE_FLAGS, Flags
from tlb.measure.columns import INT64_MAX
from tlb.measure.toolchains import TOOLCHAINS
from tlb.report import discovery
from tlb.system.page_sizes import PAGES
from tlb.system.reasons import REASONS, Unavailable

Model = TypeVar("Model", bound=BaseModel)

DESCRIPTION = re.compile(r"machine(-[0-9a-f]{12})?")
MEANS = "means"  # a chapter adds it to its document (report.chapter.Chapter.document)
_MEAN = re.compile(r"[a-z0-9]{1,8}")
# Forms that leave their author no choice: times and digests.
FORMS = dict.fromkeys(("installation", "boot_id", "rows"), r"([0-9a-f]{16})?") | {
    "measured_at": r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z",
    "state": r"[0-9a-f]{12}",
}
MOST_TEXT = 300  # characters: a mitigation's line has 120, a quantity's detail up to 200
# Printable ASCII without markup: other characters may be obeyed by a page, a terminal or a
# spreadsheet, or look like other letters.
PLAIN = re.compile(r"[ -%'-;=?-\[\]-_a-~]*")


@cache
def models() -> dict[str, type[BaseModel]]:
    """Return the model of each document by name: those of the machine, and those of chapters."""
    own: dict[str, type[BaseModel]] = {"flags": Flags, "flushes": Flushes}
    return own | discovery.documents()


def written(content: Any) -> bytes:
    """Return a document as the store writes it. Raises ValueError if it is no JSON."""
    return json.dumps(content, indent=2, sort_keys=True, allow_nan=False).encode() + b"\n"


def parsed(name: str, content: bytes) -> dict[str, Any]:
    """Return a member as an object of JSON. Raises Unavailable: bundle-unsafe for what `written`
    does not write, bundle-foreign and bundle-impossible for texts and numbers that no document has.
    """
    try:
        document = json.loads(content)
        is_as_written = isinstance(document, dict) and written(document) == content
    except (ValueError, RecursionError):
        raise Unavailable("bundle-unsafe", f"{name} is no JSON, or nested too deep") from None
    if not is_as_written:
        why = f"{name} is not JSON as the store writes it: keys once and in order, finite numbers"
        raise Unavailable("bundle-unsafe", why)
    for key, leaf in leaves(document):
        if not isinstance(leaf, str):
            if leaf is not None and not abs(leaf) <= INT64_MAX:
                raise Unavailable("bundle-impossible", f"{name}: {plain(key)} is beyond 64 bits")
        elif len(leaf) > MOST_TEXT or not PLAIN.fullmatch(leaf):
            why = f"{name}: a text is too long, or has markup or control characters: {plain(leaf)}"
            raise Unavailable("bundle-unsafe", why)
        elif key in FORMS and not re.fullmatch(FORMS[key], leaf):
            raise Unavailable("bundle-foreign", f"{name}: {key} cannot be {plain(leaf)}")
    return document


def leaves(content: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each text and number of a document, keys among them, with the key that it belongs
    to."""
    if isinstance(content, dict):
        for name, value in content.items():
            yield key, name
            yield from leaves(value, name)
    elif isinstance(content, list):
        for value in content:
            yield from leaves(value, key)
    else:
        yield key, content


def plain(text: object) -> str:
    """Return the beginning of a stranger's text, escaped, so that it can be printed."""
    return ascii(str(text)[:80])[1:-1]


def check(name: str, content: bytes) -> None:
    """Check a document that is no description. Raises Unavailable as `parsed` and `modelled` do."""
    kind = models().get(name.removesuffix(".json"))
    if kind is None:
        raise Unavailable("bundle-foreign", f"{name} is no file of a machine")
    document = parsed(name, content)
    means = document.pop(MEANS, [])
    is_list = isinstance(means, list) and all(isinstance(mean, str) for mean in means)
    if not is_list or not all(map(_MEAN.fullmatch, means)):
        raise Unavailable("bundle-foreign", f"{name}: {MEANS}")
    modelled(name, document, kind)


def modelled(name: str, document: dict[str, Any], kind: type[Model]) -> Model:
    """Return the model of a document, from which the same document comes back. Raises
    Unavailable("bundle-foreign")."""
    try:
        made = kind.model_validate_json(json.dumps(document))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        why = f"{name}: {plain(place)}: {plain(first['msg'])}"
        raise Unavailable("bundle-foreign", why) from None
    if made.model_dump(mode="json", exclude_unset=True) != document:
        raise Unavailable("bundle-foreign", f"{name}: a field is of another type")
    return made


@cache
def phrases() -> frozenset[str]:
    """Return the project's own texts: fields and their choices, programs, reasons."""
    kinds: list[type[BaseModel]] = [*models().values(), Host]
    schemas = [kind.model_json_schema() for kind in kinds]
    tools = [f"{tool} {variant}" for tool in TOOLCHAINS for variant in ("plain", "huge", "pool")]
    texts = [
        *_named(schemas),
        *tools,
        *TOOLCHAINS,
        *REASONS,
        *JAVA_FLAGS,
        *LARGE_FLAGS,
        *PAGES,
        MEANS,
    ]
    for chapter in discovery.chapters():
        texts += getattr(chapter, "DOCUMENT_TEXTS", ())
    return frozenset(texts)


def _named(schema: Any) -> Iterator[str]:
    """Yield the names of fields and the texts to choose from in a JSON Schema."""
    if isinstance(schema, dict):
        yield from schema.get("properties", ())
        choices = [*schema.get("enum", ()), schema.get("const")]
        yield from (text for text in choices if isinstance(text, str))
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from _named(part)
