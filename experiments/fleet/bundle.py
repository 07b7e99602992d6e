"""A bundle: all that is known of one machine as one file, packed by whoever measured it, checked by whoever takes it.

`<machine>.tlb.zip` holds what data/<machine>/ would (rows, descriptions, documents, data card, profile), RO-Crate's description of it, and
`bundle.json`, which has a digest of each member. Words leave a computer only where they are known to name nobody (fleet.vocabulary).
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from experiments.fleet import archive, packing, sealed
from experiments.fleet.packing import Packed
from experiments.fleet.sealed import Bundle
from experiments.lab.store import Store
from experiments.system.files import disk_errors, replace
from experiments.words.reasons import Unavailable

SUFFIX = ".tlb.zip"


def write(store: Store, machine: str, path: Path, allowed: Collection[str] = ()) -> Packed:
    """Pack what a store has of a machine into a file, which is there whole or not at all, and only if `checked` would take it.

    Raises Unavailable: bad-parameter for a folder, no-data, bundle-private for words that only their owner can let go (`allowed`),
    disk-full, disk-read-only, and what `checked` raises.
    """
    if path.is_dir():
        raise Unavailable("bad-parameter", f"--output is a file, not the folder {path}")
    packed = packing.pack(store, machine, allowed)
    content = sealed.sealed(machine, packed.files)
    sealed.opened(content)
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, content)
    return packed


def checked(path: Path) -> Bundle:
    """A bundle of which everything is as it says, and nothing is what no computer could have measured. Raises Unavailable: no-bundle
    without a file, bundle-unsafe, bundle-broken, bundle-foreign, bundle-impossible."""
    return sealed.opened(archive.read(Path(path)))
