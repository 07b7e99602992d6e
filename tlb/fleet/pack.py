"""Pack what may leave a computer, of what data/ has of a machine.

A text leaves if none of its words may name somebody. For words of a description, of which digests
are made, the owner is asked; other documents with such words stay. What is computed from rows (data
card, profile) stays too: who receives a bundle computes it again.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from tlb.fleet import check, documents, lines
from tlb.fleet.check import Bundle
from tlb.fleet.documents import DESCRIPTION
from tlb.fleet.privacy import unknown
from tlb.machine.host import Host
from tlb.measure import states
from tlb.measure.outcome import SESSIONS
from tlb.measure.record import Record
from tlb.measure.store import LACKING_POINTS, Store
from tlb.system.files import disk_errors, replace
from tlb.system.prose import count, listed
from tlb.system.reasons import Unavailable

DERIVED = {"quantities", "claims", "translation", LACKING_POINTS, SESSIONS}
MOST_SHOWN = 6  # words that the owner is asked for at once


class Packed(NamedTuple):
    """content: of the file; bundle: as a reader finds it there; left_out: phrases."""

    content: bytes
    bundle: Bundle
    left_out: list[str]


def write(store: Store, machine: str, path: Path, allowed: Collection[str] = ()) -> Packed:
    """Pack a machine into a file, whole or not at all.

    Raises Unavailable as `pack` does, and bad-parameter for a folder, disk-full, disk-read-only.
    """
    if path.is_dir():
        raise Unavailable("bad-parameter", f"--output is a file, not the folder {path}")
    packed = pack(store, machine, allowed)
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, packed.content)
    return packed


def pack(store: Store, machine: str, allowed: Collection[str] = ()) -> Packed:
    """Pack a machine. allowed: words that its owner lets go.

    Raises Unavailable: no-data where nothing was measured or described, bundle-private with the
    words that the owner has to allow, and as `check.opened`.
    """
    allow, left_out = {word.lower() for word in allowed}, list[str]()
    states.latest_description(store, machine)  # raises with the reason if there is no description
    rows = [
        (record, kept)
        for record, asked in store.asked_rows(machine)
        if (kept := sorted(check.experiments().intersection(asked)))
    ]
    grids = {
        experiment: {kernel: sorted(points) for kernel, points in grid.items()}
        for experiment, grid in lines.grids_of(rows).items()
    }
    files = {check.GRIDS_FILE: documents.written(grids)}
    for name, path in store.documents(machine).items():
        if name in DERIVED:
            continue
        content = store.read_document(machine, name)
        if DESCRIPTION.fullmatch(name):
            content = Host.model_validate(content).model_dump(mode="json")
            files[path.name] = public(path.name, content, allow)
            continue
        try:
            documents.check(path.name, documents.written(content))
            files[path.name] = public(path.name, content, allow)
        except Unavailable as why:
            reason = f"for {why.detail}" if why.code == "bundle-private" else "of another version"
            left_out.append(f"{path.name}, {reason}")
    files |= _rows(machine, [record for record, _ in rows], allow)
    sealed = check.sealed(machine, files)
    return Packed(sealed, check.opened(sealed), left_out)


def _rows(machine: str, records: list[Record], allow: set[str]) -> dict[str, bytes]:
    files: dict[str, list[bytes]] = {}
    events = set[str]()
    for record in records:
        files.setdefault(f"{record.kernel}.jsonl", []).append(lines.written(record))
        events |= {counter.event or "" for counter in record.counters.values()}
    if not files:
        raise Unavailable("no-data", f"{machine} has no rows that a chapter asked for")
    _ask({word: "a counter's event" for event in events for word in unknown(event, allow)})
    return {name: b"".join(written) for name, written in files.items()}


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
