"""Pack what may leave a computer, of what data/ has of a machine.

A text leaves if none of its words may name somebody. For words of a description, of which digests
are made, the owner is asked; other documents with such words stay.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tlb import discovery
from tlb.fleet import check, documents
from tlb.fleet.documents import DESCRIPTION
from tlb.fleet.privacy import unknown
from tlb.lab import states
from tlb.lab.store import GRIDS, LACKS, Store
from tlb.machine.host import Host
from tlb.prose import count, listed
from tlb.reasons import Unavailable
from tlb.report import card, parameters
from tlb.report.chapter import Chapter
from tlb.system.files import disk_errors, replace

profile = discovery.load("overview.profile")

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
    allow, packed = {word.lower() for word in allowed}, Packed(machine, {})
    states.latest(store, machine)  # raises with the reason if there is no description
    for path in sorted((store.root / machine).glob("machine*.json")):
        if DESCRIPTION.fullmatch(path.stem):
            host = Host.model_validate(store.read_document(machine, path.stem))
            packed.files[path.name] = public(path.name, host.model_dump(mode="json"), allow)
    grids = store.read_document(machine, GRIDS)
    grids = {name: grid for name, grid in grids.items() if name in check.experiments()}
    packed.files[check.GRIDS_FILE] = documents.written(grids)
    _pack_rows(packed, store, {kernel for grid in grids.values() for kernel in grid}, allow)
    _pack_documents(packed, store, allow)
    _derive(packed)
    return packed


def _pack_rows(packed: Packed, store: Store, kernels: set[str], allow: set[str]) -> None:
    found, events = set(), set()
    for kernel in sorted(kernels):
        if rows := store.rows(packed.machine, kernel).values():
            packed.files[f"{kernel}.jsonl"] = b"".join(row.line + b"\n" for row in rows)
            packed.rows += len(rows)
        for row in rows:
            found.add(row.record.state)
            events |= {counter.event or "" for counter in row.record.counters.values()}
    if not packed.rows:
        raise Unavailable("no-data", f"{packed.machine} has no rows that a chapter asked for")
    packed.states = sorted(found)
    _ask({word: "a counter's event" for event in events for word in unknown(event, allow)})


def _pack_documents(packed: Packed, store: Store, allow: set[str]) -> None:
    """Take the documents that this version reads and whose words name nobody; others stay."""
    for path in sorted((store.root / packed.machine).glob("*.json")):
        if path.name in packed.files or path.stem in DERIVED or DESCRIPTION.fullmatch(path.stem):
            continue
        try:
            if path.stem not in documents.models():
                raise Unavailable("bundle-foreign")
            content = store.read_document(packed.machine, path.stem)
            documents.check(path.name, documents.written(content))
            packed.files[path.name] = public(path.name, content, allow)
        except Unavailable as why:
            reason = f"for {why.detail}" if why.code == "bundle-private" else "of another version"
            packed.left_out.append(f"{path.name}, {reason}")


def public(name: str, content: dict[str, Any], allow: Collection[str] = ()) -> bytes:
    """Return a document whose every text may leave; all but rows goes through this function.
    Raises Unavailable("bundle-private")."""
    private: dict[str, str] = {}
    for key, text in documents.leaves(content):
        is_own = text in documents.phrases() or key in documents.FORMS
        if isinstance(text, str) and not is_own:
            words = unknown(text, allow) or ([] if text.isascii() else [text])
            private |= dict.fromkeys(words, f"{key} of {name}")
    _ask(private)
    return documents.written(content)


def _ask(words: dict[str, str]) -> None:
    """Raise Unavailable("bundle-private") if there are any. words: with the place of each."""
    if words:
        shown = [f"{documents.plain(word)} in {place}" for word, place in sorted(words.items())]
        more = [f"{count(len(shown) - MOST_SHOWN)} more"] if len(shown) > MOST_SHOWN else []
        raise Unavailable("bundle-private", listed(shown[:MOST_SHOWN] + more))


def _derive(packed: Packed) -> None:
    """Add data card and profile, made only from what was packed."""
    machine, host = packed.machine, Host.model_validate_json(packed.files["machine.json"])
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
