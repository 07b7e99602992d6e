"""Packing: what may leave a computer, of what data/ has of a machine.

A model's own field leaves; a text leaves if its words are known to name nobody. Of a description,
which digests are made of, the owner is asked word by word; compilers' lines end before the word,
and other documents stay.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tlb import discovery
from tlb.fleet import check, documents
from tlb.fleet.documents import DESCRIPTION, MEANS
from tlb.fleet.privacy import unknown
from tlb.lab import states
from tlb.lab.record import Record
from tlb.lab.store import GRIDS, LACKS, Store
from tlb.machine.host import Host
from tlb.prose import count, listed
from tlb.reasons import Unavailable
from tlb.report import card, parameters
from tlb.report.chapter import Chapter
from tlb.system.files import disk_errors, replace

profile = discovery.load("overview.profile")

# Texts that no digest is of: compilers' and programs' own lines, and what was in brackets behind a
# reason.
CUT = {"c_compiler", "toolchain", "version", "jvm", "jmh", "detail"}
UNNAMED = "not named"  # where nothing of such a text is left
DERIVED = {"verdicts", profile.NAME, LACKS}


@dataclass
class Packed:
    """files: by name; rows: how many; states: of the rows; left_out: what stayed, in phrases."""

    machine: str
    files: dict[str, bytes]
    rows: int = 0
    states: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def write(store: Store, machine: str, path: Path, allowed: Collection[str] = ()) -> Packed:
    """Pack what a store has of a machine into a file, whole or not at all, and only if
    `check.opened` would accept it.

    Raises Unavailable as `sealed` does, and bad-parameter for a folder, disk-full, disk-read-only.
    """
    if path.is_dir():
        raise Unavailable("bad-parameter", f"--output is a file, not the folder {path}")
    packed, content = sealed(store, machine, allowed)
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, content)
    return packed


def sealed(store: Store, machine: str, allowed: Collection[str] = ()) -> tuple[Packed, bytes]:
    """Return a bundle, and its file's bytes. Raises Unavailable as `pack` and `check.opened` do."""
    packed = pack(store, machine, allowed)
    content = check.sealed(machine, packed.files)
    check.opened(content)
    return packed, content


def pack(store: Store, machine: str, allowed: Collection[str] = ()) -> Packed:
    """Collect a bundle of a machine. allowed: words that its owner lets go.

    Raises Unavailable: no-data where nothing was measured or described, bundle-private with the
    words that the owner has to allow.
    """
    allow = {word.lower() for word in allowed}
    packed = Packed(machine, {})
    states.latest(store, machine)  # says why there is none
    for path in sorted((store.root / machine).glob("machine*.json")):
        if DESCRIPTION.fullmatch(path.stem):
            host = Host.model_validate(store.read_document(machine, path.stem))
            packed.files[path.name] = documents.written(
                public(path.name, host.model_dump(mode="json"), allow, packed)
            )
    grids = {
        name: grid
        for name, grid in store.read_document(machine, GRIDS).items()
        if name in check.experiments()
    }
    packed.files[check.GRIDS_FILE] = documents.written(grids)
    _rows(packed, store, {kernel for grid in grids.values() for kernel in grid}, allow)
    _documents(packed, store, allow)
    _derive(packed)
    packed.left_out = sorted(set(packed.left_out))
    return packed


def _rows(packed: Packed, store: Store, asked: set[str], allow: set[str]) -> None:
    """Take the rows that a reader of the store sees: of two with one key, one."""
    found, events = set(), set()
    for kernel, whole in store.whole(packed.machine).items():
        taken, kept = (
            {_id(record) for record in store.records(packed.machine, [kernel]).values()},
            [],
        )
        for row, line in whole:
            if row.record.kernel == kernel and _id(row.record) in taken:
                taken.remove(_id(row.record))
                kept.append((row.record, line))
        if kernel not in asked or not kept:
            continue
        packed.files[f"{kernel}.jsonl"] = b"".join(
            line.removesuffix(b"\r") + b"\n" for _, line in kept
        )
        packed.rows += len(kept)
        found |= {record.state for record, _ in kept}
        events |= {
            quantity.event or "" for record, _ in kept for quantity in record.counters.values()
        }
    if not packed.rows:
        raise Unavailable("no-data", f"{packed.machine} has no rows that a chapter asked for")
    packed.states = sorted(found)
    _ask({word: "a counter's event" for event in events for _, word in unknown(event, allow)})


def _id(record: Record) -> tuple[object, ...]:
    return record.started_at, record.wall_ns, record.checksum, tuple(sorted(record.uncountable))


def _documents(packed: Packed, store: Store, allow: set[str]) -> None:
    """Take the documents that this version reads and whose words name nobody; others stay."""
    for path in sorted((store.root / packed.machine).glob("*.json")):
        if path.name in packed.files or path.stem in DERIVED or DESCRIPTION.fullmatch(path.stem):
            continue
        try:
            if path.stem not in documents.models():
                raise Unavailable("bundle-foreign")
            content = store.read_document(packed.machine, path.stem)
            means = {MEANS: content.pop(MEANS)} if MEANS in content else {}
            made = documents.modelled(path.name, content, documents.models()[path.stem]).model_dump(
                mode="json", exclude_unset=True
            )
            document = documents.written(public(path.name, made | means, allow, packed))
            documents.check(path.name, document)
            packed.files[path.name] = document
        except Unavailable as why:
            reason = f"for {why.detail}" if why.code == "bundle-private" else "of another version"
            packed.left_out.append(f"{path.name}, {reason}")


def public(
    name: str, content: dict[str, Any], allow: Collection[str], packed: Packed
) -> dict[str, Any]:
    """Return a document of which every text may leave: all but rows passes here. Raises
    Unavailable("bundle-private")."""
    asked: dict[str, str] = {}

    def passed(value: Any, key: str) -> Any:
        if isinstance(value, dict):
            return {passed(name, key): passed(part, name) for name, part in value.items()}
        if isinstance(value, list):
            return [passed(part, key) for part in value]
        if not isinstance(value, str) or value in documents.phrases() or key in documents.FORMS:
            return value
        found = unknown(value, allow)
        if found and key in CUT:
            packed.left_out.append(f"the end of {key} in {name}")
            return (
                value[: value.rfind(" ", 0, found[0][0]) + 1].rstrip(" (-_.,:;=/+") or UNNAMED
            )  # with all that the word is joined to
        asked.update({word: f"{key} of {name}" for _, word in found})
        if not found and not value.isascii():
            asked[value] = f"{key} of {name}"
        return value

    document = passed(content, "")
    _ask(asked)
    return document


def _ask(words: dict[str, str]) -> None:
    """Raise Unavailable("bundle-private") if there are any. words: where each stands."""
    if words:
        shown = [f"{documents.plain(word)} in {where}" for word, where in sorted(words.items())]
        raise Unavailable(
            "bundle-private",
            listed(shown[:6] + [f"{count(len(shown) - 6)} more"] * (len(shown) > 6)),
        )


def _derive(packed: Packed) -> None:
    """Add data card and profile, made of what was packed alone."""
    machine, host = packed.machine, documents.host("machine.json", packed.files["machine.json"])
    with tempfile.TemporaryDirectory() as folder:
        store = staged(Path(folder), machine, packed.files)
        made = profiled(store, machine)
        plain = made.model_copy(
            update={
                "quantities": tuple(
                    quantity.model_copy(update={"detail": ""}) for quantity in made.quantities
                )
            }
        )
        packed.files[f"{profile.NAME}.json"] = documents.written(plain.model_dump(mode="json"))
        packed.files[check.CARD] = card.card(store, machine, host).encode()


def profiled(store: Store, machine: str) -> profile.Profile:
    """Return a machine's profile, worked out from a store."""
    return profile.of_chapter(
        Chapter(
            profile.PAGE,
            parameters.check(profile.PAGE, {"machine": machine, "minutes": 0.0}),
            store,
        )
    )


def staged(root: Path, machine: str, files: dict[str, bytes]) -> Store:
    """Return a store that holds these files of one machine, which is its own reference."""
    (folder := root / machine).mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (root / "reference").write_text(f"{machine}\n", encoding="ascii")
    return Store(root)
