"""What a folder or an archive holds, in a file that data archives read: RO-Crate Metadata
Specification 1.1, as JSON-LD."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

NAME = "ro-crate-metadata.json"
MIT, CC_BY = "https://spdx.org/licenses/MIT", "https://creativecommons.org/licenses/by/4.0/"
_LICENCES = {MIT: "MIT License", CC_BY: "Creative Commons Attribution 4.0 International"}

Entity = dict[str, Any]


def crate(root: Entity, files: Iterable[Entity], *others: Entity) -> Entity:
    """The document. root: of the Dataset, without its id and its parts; files: each with its id and
    what else there is to say of it."""
    parts = [{"@id": file["@id"], "@type": "File"} | file for file in files]
    used = [
        {"@id": licence, "@type": "CreativeWork", "name": name}
        for licence, name in _LICENCES.items()
        if licence in {entity["license"]["@id"] for entity in (root, *parts)}
    ]
    descriptor = {
        "@id": NAME,
        "@type": "CreativeWork",
        "about": {"@id": "./"},
        "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
    }
    dataset = {"@id": "./", "@type": "Dataset"} | root | {"hasPart": ids(parts)}
    return {
        "@context": "https://w3id.org/ro/crate/1.1/context",
        "@graph": [descriptor, dataset, *parts, *others, *used],
    }


def machines(named: Mapping[str, str]) -> list[Entity]:
    """Computers that were measured. named: id -> what it is in words."""
    return [
        {"@id": f"#{machine}", "@type": "IndividualProduct", "name": words}
        for machine, words in named.items()
    ]


def measured(what: str, on: Iterable[Entity], result: str) -> Entity:
    """The act of measuring, which RO-Crate calls a CreateAction. result: the id of what came of it."""
    return {
        "@id": "#measured",
        "@type": "CreateAction",
        "name": what,
        "instrument": ids(on),
        "result": {"@id": result},
    }


def ids(entities: Iterable[Entity]) -> list[dict[str, str]]:
    return [{"@id": entity["@id"]} for entity in entities]
