"""Packing: of what data/ has of a machine, what may leave its computer.

What is a model's own field goes; a text goes where its words are known to name nobody. Where another word stands in a text that digests are
made of (the kernel's release, the CPU's name), leaving it out would make another machine of it, so its owner is asked; elsewhere the text
ends before the word.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.article import card, parameters
from experiments.article import crate as crates
from experiments.article.chapter import Chapter
from experiments.article.setting import name_of
from experiments.fleet import documents, sealed
from experiments.fleet.documents import DESCRIPTION, MEANS, MODELS, leaves, phrases
from experiments.fleet.vocabulary import unknown
from experiments.front import profile
from experiments.lab import lines, states
from experiments.lab.store import GRIDS, LACKS, Store
from experiments.machine.host import Host
from experiments.words.prose import count, listed
from experiments.words.reasons import Unavailable

# Texts that no digest is of: compilers' and programs' own lines, and what was in brackets behind a reason.
CUT = {"c_compiler", "toolchain", "version", "jvm", "jmh", "detail"}
UNNAMED = "not named"  # where nothing of such a text is left
FUNCTIONS = "profiles"  # of kernel_side.json: names of functions, which whoever builds a kernel may choose


@dataclass
class Packed:
    """files: by name; rows: how many; states: of them; left_out: what stayed, in phrases."""

    machine: str
    files: dict[str, bytes]
    rows: int = 0
    states: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def pack(store: Store, machine: str, allowed: Collection[str] = ()) -> Packed:
    """What a bundle of a machine holds. allowed: words that its owner lets go.

    Raises Unavailable: no-data where nothing was measured or described, bundle-private with the words that its owner is asked of.
    """
    allow = {word.lower() for word in allowed}
    packed = Packed(machine, {})
    _describe(packed, store, allow)
    grids = {name: grid for name, grid in store.read_document(machine, GRIDS).items() if name in sealed.experiments()}
    packed.files[f"{GRIDS}.json"] = documents.written(grids)
    _rows(packed, store, {kernel for grid in grids.values() for kernel in grid}, allow)
    _documents(packed, store, allow)
    _derive(packed)
    packed.left_out = sorted(set(packed.left_out))
    return packed


def _describe(packed: Packed, store: Store, allow: set[str]) -> None:
    """machine.json and those of its other states, as this version describes a computer."""
    states.latest(store, packed.machine)  # says why there is none
    for path in sorted((store.root / packed.machine).glob("machine*.json")):
        if DESCRIPTION.fullmatch(path.stem):
            host = Host.model_validate(store.read_document(packed.machine, path.stem))
            packed.files[path.name] = documents.written(public(path.name, host.model_dump(mode="json"), allow, packed))


def _rows(packed: Packed, store: Store, asked: set[str], allow: set[str]) -> None:
    """The rows that a reader of the store takes: of two with one key one."""
    found, events = set(), set()
    for kernel, whole in store.whole(packed.machine).items():
        taken = {record_id(record) for record in store.records(packed.machine, [kernel]).values()}
        kept = [(row.record, line) for row, line in whole if row.record.kernel == kernel and record_id(row.record) in taken]
        if kernel not in asked or not kept:
            continue
        packed.files[f"{kernel}.jsonl"] = b"".join(line.removesuffix(b"\r") + b"\n" for _, line in kept)
        packed.rows += len(kept)
        found |= {record.state for record, _ in kept}
        events |= {quantity.event or "" for record, _ in kept for quantity in record.counters.values()}
    if not packed.rows:
        raise Unavailable("no-data", f"{packed.machine} has no rows that a chapter asked for")
    packed.states = sorted(found)
    _ask({word: "a counter's event" for event in events for _, word in unknown(event, allow)})


def record_id(record: Any) -> tuple[object, ...]:
    return record.started_at, record.wall_ns, record.checksum, tuple(sorted(record.uncountable))


def _documents(packed: Packed, store: Store, allow: set[str]) -> None:
    """Those that this version reads; others stay."""
    for path in sorted((store.root / packed.machine).glob("*.json")):
        if path.name in packed.files or path.stem in {"verdicts", profile.NAME, LACKS} or DESCRIPTION.fullmatch(path.stem):
            continue
        try:
            if path.stem not in MODELS:
                raise Unavailable("bundle-foreign")
            content = store.read_document(packed.machine, path.stem)
            means = {MEANS: content.pop(MEANS)} if MEANS in content else {}
            _leave_functions(path.stem, content, allow, packed)
            made = documents.modelled(path.name, content, MODELS[path.stem])
            told = public(path.name, made.model_dump(mode="json", exclude_unset=True) | means, allow, packed)
            documents.check(path.name, content := documents.written(told))
            packed.files[path.name] = content
        except Unavailable as why:
            if why.code == "bundle-private":
                raise
            packed.left_out.append(f"{path.name}, of another version")


def _leave_functions(name: str, content: dict[str, Any], allow: set[str], packed: Packed) -> None:
    """The profiles of a kernel some of whose functions nobody knows, for a share that is missing would be said to be small."""
    profiles = content.get(FUNCTIONS) if name == "kernel_side" else None
    if isinstance(profiles, dict) and any(unknown(str(text), allow) for _, text in leaves(profiles) if isinstance(text, str)):
        content[FUNCTIONS] = {}
        content["lacking"] = {**content.get("lacking", {}), FUNCTIONS: "bundle-private"}
        packed.left_out.append(f"{FUNCTIONS} of {name}.json, for functions that are in no list")


def public(name: str, content: dict[str, Any], allow: Collection[str], packed: Packed) -> dict[str, Any]:
    """A document of which each text may leave: all that goes into a bundle beside rows goes through here. Raises
    Unavailable("bundle-private")."""
    asked: dict[str, str] = {}

    def opened(value: Any, where: str) -> Any:
        if isinstance(value, dict):
            return {opened(key, where): opened(part, key) for key, part in value.items()}
        if isinstance(value, list):
            return [opened(part, where) for part in value]
        if not isinstance(value, str) or value in phrases() or where in documents.FORMS:
            return value
        found = unknown(value, allow)
        if found and where in CUT:
            packed.left_out.append(f"the end of {where} in {name}")
            return value[:value.rfind(" ", 0, found[0][0]) + 1].rstrip(" (-_.,:;=/+") or UNNAMED  # with all that the word is joined to
        asked.update({word: f"{where} of {name}" for _, word in found})
        if not found and not value.isascii():
            asked[value] = f"{where} of {name}"
        return value

    told = opened(content, "")
    _ask(asked)
    return told


def _ask(words: dict[str, str]) -> None:
    """Raises Unavailable("bundle-private") where there are any. words: each with where it stands."""
    if words:
        shown = [f"{documents.plain(word)} in {where}" for word, where in sorted(words.items())]
        raise Unavailable("bundle-private", listed(shown[:6] + [f"{count(len(shown) - 6)} more"] * (len(shown) > 6)))


def _derive(packed: Packed) -> None:
    """Data card, profile and RO-Crate's description, of what was packed and of nothing else."""
    machine, host = packed.machine, documents.host("machine.json", packed.files["machine.json"])
    with tempfile.TemporaryDirectory() as folder:
        store = staged(Path(folder), machine, packed.files)
        made = profile.of_chapter(Chapter(profile.PAGE, parameters.check(profile.PAGE, {"machine": machine, "minutes": 0.0}), store))
        plain = made.model_copy(update={"quantities": tuple(quantity.model_copy(update={"detail": ""}) for quantity in made.quantities)})
        packed.files[f"{profile.NAME}.json"] = documents.written(plain.model_dump(mode="json"))
        packed.files[sealed.CARD] = card.card(store, machine, host).encode()
    packed.files[crates.NAME] = documents.written(_crate(packed, host))


def staged(root: Path, machine: str, files: dict[str, bytes]) -> Store:
    """A store that holds these files of one machine, which is its own reference."""
    (folder := root / machine).mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (root / "reference").write_text(f"{machine}\n", encoding="ascii")
    return Store(root)


def _crate(packed: Packed, host: Host) -> crates.Entity:
    words = {".jsonl": "Measured rows, one process each", ".md": "The data card", ".json": "A description, or a document of a chapter"}
    kinds = {".jsonl": "application/jsonl", ".md": "text/markdown", ".json": "application/json"}
    licence = {"license": {"@id": crates.CC_BY}}
    files = [{"@id": name, "name": words[suffix], "encodingFormat": kinds[suffix], "contentSize": str(len(content)), **licence}
             for name, content in sorted(packed.files.items()) for suffix in [Path(name).suffix]]
    machines = crates.machines({packed.machine: name_of(host)})
    measured = crates.measured("Measured the rows", machines, "./")
    last = max(row.record.started_at for name, content in packed.files.items() if name.endswith(".jsonl")
               for line in content.splitlines()[-1:] for row in [lines.parse(line)] if isinstance(row, lines.Stored))
    root = {"name": f"Address translation on {packed.machine}", "datePublished": last[:10], **licence, "mentions": {"@id": measured["@id"]},
            "description": f"{packed.rows} measurements of what address translation costs, each of one process, and their computer."}
    return crates.crate(root, files, measured, *machines)


