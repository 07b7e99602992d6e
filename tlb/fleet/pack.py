"""Pack what may leave a computer, of what data/ has of a machine.

A model's own field leaves; a text leaves if none of its words may name somebody. For words of a
description, of which digests are made, the owner is asked; lines of compilers are cut before such a
word, and other documents stay.
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

# Texts of which no digest is made: lines of compilers and programs, and details of reasons.
CUT = {"c_compiler", "toolchain", "version", "jvm", "jmh", "detail"}
UNNAMED = "not named"  # instead of such a text of which nothing is left
DERIVED = {"verdicts", profile.NAME, LACKS}
MOST_SHOWN = 6  # words that the owner is asked for at once


@dataclass
class Packed:
    """files: content by name; rows: their number; states: of the rows; left_out: phrases."""

    machine: str
    files: dict[str, bytes]
    rows: int = 0
    states: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def write(store: Store, machine: str, path: Path, allowed: Collection[str] = ()) -> Packed:
    """Pack a machine into a file, whole or not at all.

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
    """Return a bundle and the bytes of its file. Raises Unavailable as `pack` and
    `check.opened`."""
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
    states.latest(store, machine)  # raises with the reason if there is no description
    for path in sorted((store.root / machine).glob("machine*.json")):
        if DESCRIPTION.fullmatch(path.stem):
            host = Host.model_validate(store.read_document(machine, path.stem))
            content = public(path.name, host.model_dump(mode="json"), allow, packed)
            packed.files[path.name] = documents.written(content)
    grids = store.read_document(machine, GRIDS)
    grids = {name: grid for name, grid in grids.items() if name in check.experiments()}
    packed.files[check.GRIDS_FILE] = documents.written(grids)
    _pack_rows(packed, store, {kernel for grid in grids.values() for kernel in grid}, allow)
    _pack_documents(packed, store, allow)
    _derive(packed)
    packed.left_out = sorted(set(packed.left_out))
    return packed


def _pack_rows(packed: Packed, store: Store, kernels: set[str], allow: set[str]) -> None:
    """Take the rows that a reader of the store sees: one for each key."""
    found, events = set(), set()
    for kernel, whole in store.whole(packed.machine).items():
        if kernel not in kernels:
            continue
        read = {_id(record) for record in store.records(packed.machine, [kernel]).values()}
        kept = []
        for row, line in whole:
            if row.record.kernel == kernel and _id(row.record) in read:
                read.remove(_id(row.record))
                kept.append(line.removesuffix(b"\r") + b"\n")
                found.add(row.record.state)
                events |= {counter.event or "" for counter in row.record.counters.values()}
        if kept:
            packed.files[f"{kernel}.jsonl"] = b"".join(kept)
            packed.rows += len(kept)
    if not packed.rows:
        raise Unavailable("no-data", f"{packed.machine} has no rows that a chapter asked for")
    packed.states = sorted(found)
    _ask({word: "a counter's event" for event in events for _, word in unknown(event, allow)})


def _id(record: Record) -> tuple[object, ...]:
    return record.started_at, record.wall_ns, record.checksum, tuple(sorted(record.uncountable))


def _pack_documents(packed: Packed, store: Store, allow: set[str]) -> None:
    """Take the documents that this version reads and whose words name nobody; others stay."""
    for path in sorted((store.root / packed.machine).glob("*.json")):
        if path.name in packed.files or path.stem in DERIVED or DESCRIPTION.fullmatch(path.stem):
            continue
        try:
            if path.stem not in documents.models():
                raise Unavailable("bundle-foreign")
            content = store.read_document(packed.machine, path.stem)
            means = {MEANS: content.pop(MEANS)} if MEANS in content else {}
            made = documents.modelled(path.name, content, documents.models()[path.stem])
            dumped = made.model_dump(mode="json", exclude_unset=True) | means
            document = documents.written(public(path.name, dumped, allow, packed))
            documents.check(path.name, document)
            packed.files[path.name] = document
        except Unavailable as why:
            reason = f"for {why.detail}" if why.code == "bundle-private" else "of another version"
            packed.left_out.append(f"{path.name}, {reason}")


def public(
    name: str, content: dict[str, Any], allow: Collection[str], to: Packed
) -> dict[str, Any]:
    """Return a document of which every text may leave; all but rows goes through this function.
    Raises Unavailable("bundle-private")."""
    private: dict[str, str] = {}

    def passed(value: Any, key: str) -> Any:
        if isinstance(value, dict):
            return {passed(name, key): passed(part, name) for name, part in value.items()}
        if isinstance(value, list):
            return [passed(part, key) for part in value]
        if not isinstance(value, str) or value in documents.phrases() or key in documents.FORMS:
            return value
        found = unknown(value, allow)
        if found and key in CUT:
            to.left_out.append(f"the end of {key} in {name}")
            kept = value[: value.rfind(" ", 0, found[0][0]) + 1]  # without half a word
            return kept.rstrip(" (-_.,:;=/+") or UNNAMED
        private.update({word: f"{key} of {name}" for _, word in found})
        if not found and not value.isascii():
            private[value] = f"{key} of {name}"
        return value

    document = passed(content, "")
    _ask(private)
    return document


def _ask(words: dict[str, str]) -> None:
    """Raise Unavailable("bundle-private") if there are any. words: with the place of each."""
    if words:
        shown = [f"{documents.plain(word)} in {place}" for word, place in sorted(words.items())]
        more = [f"{count(len(shown) - MOST_SHOWN)} more"] if len(shown) > MOST_SHOWN else []
        raise Unavailable("bundle-private", listed(shown[:MOST_SHOWN] + more))


def _derive(packed: Packed) -> None:
    """Add data card and profile, made of what was packed alone."""
    machine, host = packed.machine, documents.host("machine.json", packed.files["machine.json"])
    with tempfile.TemporaryDirectory() as folder:
        store = staged(Path(folder), machine, packed.files)
        made = profiled(store, machine).model_dump(mode="json")
        for quantity in made["quantities"]:
            quantity["detail"] = ""
        packed.files[f"{profile.NAME}.json"] = documents.written(made)
        packed.files[check.CARD] = card.card(store, machine, host).encode()


def profiled(store: Store, machine: str) -> profile.Profile:
    """Return a machine's profile, worked out from a store."""
    given = parameters.check(profile.PAGE, {"machine": machine, "minutes": 0.0})
    return profile.of_chapter(Chapter(profile.PAGE, given, store))


def staged(root: Path, machine: str, files: dict[str, bytes]) -> Store:
    """Return a store of these files of one machine, which is its own reference."""
    (folder := root / machine).mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (root / "reference").write_text(f"{machine}\n", encoding="ascii")
    return Store(root)
