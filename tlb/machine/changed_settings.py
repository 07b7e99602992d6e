"""Settings of Linux that a command changes for a while, and the journal that puts them back.

Each change is written to one journal before it is made, so whatever ends the process, kill -9
included, the next command can undo it. Nothing else in this project changes a setting of the
machine. A value that is neither the old one nor one written here is somebody else's, and stays.

An owner ("pool" or "try") restores what it changed itself, the last change first. A reboot
empties /run (FHS 3.0, 3.15) and resets the settings. Where /run outlives a boot all the same, as in
many containers, the id of the boot in the journal voids it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from tlb.machine import background
from tlb.system import files, procfs
from tlb.system.reasons import Unavailable, explain_reason

_MM = Path("sys/kernel/mm")
_POOL = re.compile(r"sys/kernel/mm/hugepages/hugepages-[0-9]{1,9}kB/nr_hugepages")
# Of one size of transparent page: its own word, or `inherit` (Linux 6.8)
_SIZE = re.compile(r"sys/kernel/mm/transparent_hugepage/hugepages-[0-9]{1,9}kB/enabled")
# What else a trial may compare: of transparent huge pages, and of khugepaged, which makes them later.
_THP = (
    "enabled",
    "defrag",
    "shmem_enabled",
    "use_zero_page",
    "shrink_underused",
    *(f"khugepaged/{name}" for name in ("defrag", "pages_to_scan", "scan_sleep_millisecs")),
    *(f"khugepaged/{name}" for name in ("alloc_sleep_millisecs", "max_ptes_none")),
    *(f"khugepaged/{name}" for name in ("max_ptes_shared", "max_ptes_swap")),
)
_BOOT = Path("proc/sys/kernel/random/boot_id")
_MOST_BYTES = 2**16  # a hundred bytes for each of a handful of changes
Owner = Literal["pool", "try"]
_REFUSED_REMEDY = "Write the value by hand and look at the kernel's log."
_HELD_REMEDY = "Run the same command again once the programs that hold memory have ended."


class SettingChange(BaseModel):
    """The value of a setting before, and those written since.

    pending: true from before a write until its outcome is known; a pool may then have any size
    between the old and the new one.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    before: str
    written: list[str]
    pending: bool = False

    def holds(self, now: str) -> bool:
        """Return whether `now` is the old value or one of ours."""
        known = [self.before, *self.written]
        if self.pending and all(value.isdecimal() for value in (*known, now)):
            return min(map(int, known)) <= int(now) <= max(map(int, known))
        return now in known


class _Journal(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    boot: str
    changes: dict[Owner, dict[str, SettingChange]]


class RestoredSetting(NamedTuple):
    """A setting before and after `restore`. why: what is not as it was, and the remedy, or ""."""

    name: str
    found: str
    now: str
    why: str


def names(root: Path = Path("/")) -> set[str]:
    """Return all settings that may be changed; no others are ever written."""
    pools = {str(path.relative_to(root)) for path in (root / _MM / "hugepages").glob("*/nr_*")}
    thp = {str(_MM / "transparent_hugepage" / name) for name in _THP}
    return (
        {name for name in pools if _POOL.fullmatch(name)}
        | {*sizes(root).values()}
        | {name for name in thp if (root / name).is_file()}
    )


def sizes(root: Path = Path("/")) -> dict[int, str]:
    """Return the settings of single sizes of transparent pages, by size in KiB; {} before Linux
    6.8."""
    folders = procfs.numbered(root / _MM / "transparent_hugepage", r"hugepages-([0-9]{1,9})kB")
    files = {kib: path / "enabled" for kib, path in folders}
    return {kib: str(path.relative_to(root)) for kib, path in files.items() if path.exists()}


def value(name: str, root: Path = Path("/")) -> str:
    """Return a setting, "" if it does not exist: of several words the chosen one, of a pool its
    persistent pages, which exclude the surplus that nr_hugepages in sysfs counts when read."""
    if _POOL.fullmatch(name) and (total := procfs.number(root / name)) is not None:
        return str(total - (procfs.number((root / name).with_name("surplus_hugepages")) or 0))
    has_words = "[" in procfs.text(root / name)
    return procfs.chosen(root / name) if has_words else procfs.word(root / name)


def changes(root: Path, owner: Owner) -> dict[str, SettingChange]:
    """Return the owner's changes, {} if there are none. Raises Unavailable("file-damaged")."""
    return _read(root).get(owner, {})


def borrow(name: str, wanted: str, root: Path, owner: Owner) -> None:
    """Set one until `restore`. Raises Unavailable: linux-lacks, setting-refused
    also if Linux keeps another value, file-damaged."""
    if name not in names(root) or not value(name, root):
        raise Unavailable("linux-lacks", f"/{name}")
    may_write(root, name)
    with alone(root):
        if refused := change(root, owner, name, wanted):
            raise Unavailable("setting-refused", f"/{name}: {refused}", _REFUSED_REMEDY)
    if (now := value(name, root)) != wanted:
        raise Unavailable("setting-refused", f"/{name} has {now} and not {wanted}", _REFUSED_REMEDY)


def change(root: Path, owner: Owner, name: str, wanted: str) -> str:
    """Journal and set one, inside `alone`. Return the error of a kernel that refuses, or ""."""
    journal, now = _read(root), value(name, root)
    if now == wanted:
        return ""
    own = journal.setdefault(owner, {})
    # Of two changes of ours the first knows what was there before. Somebody else's value is what
    # they want back.
    last = (
        own[name] if name in own and own[name].holds(now) else SettingChange(before=now, written=[])
    )
    written = [*dict.fromkeys([*last.written, wanted])]
    own[name] = SettingChange(before=last.before, written=written, pending=True)
    _write(root, journal)
    refused = ""
    try:
        _set(root, name, wanted)
    except OSError as error:
        refused = error.strerror or str(error)
    got = value(name, root)
    if got == last.before:
        del own[name]
    else:
        own[name] = SettingChange(before=last.before, written=[got])
    _write(root, journal)
    return refused


def restore(root: Path, owner: Owner) -> list[RestoredSetting]:
    """Put the owner's settings back, the last first, if their value is still ours; [] if nothing
    was changed. Raises Unavailable: setting-refused, file-damaged.

    Between the check and the write another may change a setting: Linux cannot exclude that.
    """
    if not changes(root, owner):
        return []
    done = []
    with alone(root):
        journal = _read(root)
        own = journal[owner]
        for name in [*own]:
            may_write(root, name)
        for name, changed in reversed([*own.items()]):
            found, why = value(name, root), ""
            if not changed.holds(found):
                # The entry goes: kept, it would undo their value on the day that it equals ours.
                theirs = f"/{name} has {found or 'nothing'}, {changed.before} before"
                why = explain_reason(
                    "setting-refused",
                    f"it was changed again meanwhile: {theirs}",
                    "Write the value that it should have; our change is no longer recorded.",
                )
                del own[name]
            elif held := _put_back(root, name, changed.before, found):
                why = explain_reason("setting-refused", f"/{name}: {held}", _HELD_REMEDY)
                own[name] = SettingChange(before=changed.before, written=[value(name, root)])
            else:
                del own[name]
            _write(root, journal)
            done.append(RestoredSetting(name, found, value(name, root), why))
    return done


def _put_back(root: Path, name: str, before: str, found: str) -> str:
    """Set a value that was there before; return what keeps it from being so, or ""."""
    if found != before:
        try:
            _set(root, name, before)
        except OSError as error:
            return error.strerror or str(error)
    # Pages in use leave a pool when they are let go; until then they are surplus.
    more = (procfs.number(root / name) or 0) - int(before) if _POOL.fullmatch(name) else 0
    return f"{more} pages are still in use" if more > 0 else ""


@contextmanager
def borrowing(root: Path, owner: Owner) -> Iterator[None]:
    """Put back at the end what is borrowed inside, and before it what a killed process left. Raises
    Unavailable as `restore` does, and setting-refused if something could not be put back."""
    restore(root, owner)
    try:
        yield
    finally:
        left = [one.why for one in restore(root, owner) if one.why]
        if left and not sys.exc_info()[0]:
            raise Unavailable("setting-refused", "; ".join(left), _HELD_REMEDY)


def may_write(root: Path, name: str) -> None:
    """Raise Unavailable("setting-refused") unless this process can change it, as in a user
    namespace, where root's file belongs to the host. Changes nothing."""
    if (namespace := background.user_namespace(root)).startswith("on"):
        raise Unavailable(
            "setting-refused",
            f"/{name} is the host's, and this process runs in a user namespace: "
            f"{namespace.removeprefix('on: ')}",
            "Run the command on the host, outside the namespace.",
        )
    try:
        os.close(os.open(root / name, os.O_WRONLY | files.SAFE_OPEN_FLAGS))
    except OSError as error:
        raise Unavailable("setting-refused", f"/{name}: {error.strerror}") from error


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """Wait until no other process changes settings. The lock is on a folder of sysfs, so no file of
    it can be left behind."""
    fd = os.open(root / _MM, os.O_RDONLY | files.SAFE_OPEN_FLAGS)
    try:
        files.lock_file(fd)
        yield
    finally:
        os.close(fd)


def _set(root: Path, name: str, wanted: str) -> None:
    """Raise OSError if Linux refuses.

    Of a pool the file for all nodes: a chapter's process may run on any node, and one number can be
    put back. Linux spreads what it adds over the nodes with memory.
    """
    fd = os.open(root / name, os.O_WRONLY | files.SAFE_OPEN_FLAGS)
    try:
        os.write(fd, wanted.encode())
    finally:
        os.close(fd)


def _journal_error(why: str) -> Unavailable:
    return Unavailable(
        "file-damaged",
        f"the journal of changed settings, {why}",
        "Compare the settings with what you want and correct them by hand; then remove the "
        "journal, and make sure that root can write its folder.",
    )


def _read(root: Path) -> dict[Owner, dict[str, SettingChange]]:
    path = root / files.SETTINGS_JOURNAL
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | files.SAFE_OPEN_FLAGS)
        try:
            content = os.read(fd, _MOST_BYTES)
        finally:
            os.close(fd)
        journal = _Journal.model_validate_json(content)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _journal_error(f"{path}: {error.strerror}") from error
    except ValidationError as error:
        raise _journal_error(f"{path} is damaged") from error
    boot = procfs.word(root / _BOOT)  # "" where /proc shows processes alone (subset=pid)
    if journal.boot and boot and journal.boot != boot:
        return {}
    unknown = {name for own in journal.changes.values() for name in own} - names(root)
    if unknown:
        listed = procfs.label(min(unknown))
        raise _journal_error(f"{path} names what does not exist: {listed}")
    return journal.changes


def _write(root: Path, changes: dict[Owner, dict[str, SettingChange]]) -> None:
    """Replace the journal in one step, synced; remove it if nothing is left to put back."""
    path = root / files.SETTINGS_JOURNAL
    left = {owner: own for owner, own in changes.items() if own}
    try:
        if left:
            journal = _Journal(boot=procfs.word(root / _BOOT), changes=left)
            files.replace_file(path, journal.model_dump_json().encode() + b"\n")
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise _journal_error(f"{path}: {error.strerror}") from error
