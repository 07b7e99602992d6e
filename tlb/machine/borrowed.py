"""Settings of the kernel that a measurement borrows: changed one by one, each in a journal first,
and put back in the reverse order.

A value that is neither what was there before nor one of those that were written here is somebody
else's, and stays.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from tlb.machine.journal import Journal
from tlb.reasons import Unavailable, explain
from tlb.system import files, procfs

_MM = Path("sys/kernel/mm")
DEFRAG = "sys/kernel/mm/transparent_hugepage/defrag"
KSM_RUN, KSM_PAGES, KSM_SLEEP = (
    f"sys/kernel/mm/ksm/{name}" for name in ("run", "pages_to_scan", "sleep_millisecs")
)
ZRAM = "sys/block/zram0/disksize"
SWAP = "dev/zram0"  # as swap: on or off
_POOL = re.compile(r"sys/kernel/mm/hugepages/hugepages-[0-9]{1,9}kB/nr_hugepages")
_ON, _OFF = "on", "off"
_FIRST = (
    0x8000 | 0x7FFF
)  # SWAP_FLAG_PREFER and the highest priority (linux/swap.h): before any other swap


class Change(BaseModel):
    """What a setting was, and what has been written to it since."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    before: str
    asked: list[str]

    def holds(self, now: str) -> bool:
        """Whether `now` is the old value or one of ours."""
        return now in (self.before, *self.asked)


def names(root: Path = Path("/")) -> set[str]:
    """All settings that may be borrowed; only these are ever written."""
    pools = {
        str(path.relative_to(root)) for path in (root / _MM / "hugepages").glob("*/nr_hugepages")
    }
    return {DEFRAG, KSM_RUN, KSM_PAGES, KSM_SLEEP, ZRAM, SWAP} | {
        name for name in pools if _POOL.fullmatch(name)
    }


_JOURNAL = Journal("every-load-settings", Change, names, "setting-journal")


class Restored(NamedTuple):
    """One setting when `restore` came, and after it. `why` says what is not as it was, and the
    remedy, or ""."""

    name: str
    found: str
    now: str
    why: str


def changes(root: Path = Path("/")) -> dict[str, Change]:
    """What the journal says; {} where nothing is changed. Raises Unavailable("setting-journal")."""
    return _JOURNAL.read(root)


def value(name: str, root: Path = Path("/")) -> str:
    """A setting as it is, "" where there is none: of several words the chosen one."""
    if name == SWAP:
        return (
            _ON
            if re.search(rf"^/{SWAP}\s", procfs.text(root / "proc/swaps"), re.MULTILINE)
            else _OFF
        )
    found = procfs.chosen(root / name) if name == DEFRAG else procfs.word(root / name)
    return "" if found == "absent" else found


def borrow(name: str, wanted: str, root: Path = Path("/")) -> None:
    """Sets one, until `restore`. Raises Unavailable: setting-absent, setting-denied,
    setting-refused where the kernel took another value, setting-journal."""
    if name not in names(root) or not (now := value(name, root)):
        raise Unavailable("setting-absent", f"/{name}")
    _may_write(root, name)
    with _alone(root):
        journal = changes(root)
        last = journal.get(name)
        ours = last if last and last.holds(now) else Change(before=now, asked=[])
        if now != wanted:
            _write(
                root,
                journal
                | {name: Change(before=ours.before, asked=[*dict.fromkeys([*ours.asked, wanted])])},
            )
            try:
                _set(root, name, wanted)
            except OSError as error:
                raise Unavailable("setting-refused", f"/{name}: {error.strerror}") from error
    if (now := value(name, root)) != wanted:
        raise Unavailable("setting-refused", f"/{name} has {now} and not {wanted}")


def restore(root: Path = Path("/")) -> list[Restored]:
    """Puts every setting in the journal back, the last first, where its value is still ours; []
    where nothing was changed. Raises Unavailable: setting-denied, setting-journal."""
    if not changes(root):
        return []
    done = []
    with _alone(root):
        journal = changes(root)
        for name, change in reversed([*journal.items()]):
            found, why = value(name, root), ""
            if not change.holds(found):
                why = explain(
                    "setting-changed", f"/{name} has {found or 'nothing'}, {change.before} before"
                )
            elif found != change.before:
                _may_write(root, name)
                try:
                    _set(root, name, change.before)
                except OSError as error:
                    why = explain("setting-held", f"/{name}: {error.strerror}")
            if not (why and change.holds(found)):  # else it is still to be put back
                del journal[name]
                _write(root, journal)
            done.append(Restored(name, found, value(name, root), why))
    return done


@contextmanager
def borrowing(root: Path = Path("/")) -> Iterator[None]:
    """What is borrowed inside is put back at the end, and before it what a killed process left.
    Raises Unavailable as `restore` does, and setting-held where something could not be put back."""
    restore(root)
    try:
        yield
    finally:
        left = [one.why for one in restore(root) if one.why]
        if left and not sys.exc_info()[0]:
            raise Unavailable("setting-held", "; ".join(left))


def _may_write(root: Path, name: str) -> None:
    """Raises Unavailable("setting-denied") unless this process can change it; nothing is changed by
    asking."""
    path = root / (ZRAM if name == SWAP else name)
    try:
        os.close(os.open(path, os.O_WRONLY | files.OPEN_FLAGS))
    except OSError as error:
        raise Unavailable("setting-denied", f"/{name}: {error.strerror}") from error


def _set(root: Path, name: str, wanted: str) -> None:
    """Raises OSError where the kernel refuses."""
    if name == SWAP:
        _swap(root / name, wanted == _ON)
        return
    # A device of zram has a size once, until it is reset
    # (Documentation/admin-guide/blockdev/zram.rst).
    path, written = (
        ((root / ZRAM).with_name("reset"), "1")
        if (name, wanted) == (ZRAM, "0")
        else (root / name, wanted)
    )
    fd = os.open(path, os.O_WRONLY | files.OPEN_FLAGS)
    try:
        os.write(fd, written.encode())
    finally:
        os.close(fd)


def _swap(device: Path, on: bool) -> None:
    """swapon(2) or swapoff(2). Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    of = os.fsencode(device)
    if libc.swapon(of, _FIRST) if on else libc.swapoff(of):
        raise OSError(number := ctypes.get_errno(), os.strerror(number))


def _write(root: Path, journal: dict[str, Change]) -> None:
    _JOURNAL.write(root, journal)


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Waits until no other process is in here. The lock is on the kernel's own folder, so no file
    of it can be left behind."""
    fd = os.open(root / _MM, os.O_RDONLY | files.OPEN_FLAGS)
    try:
        files.lock(fd)
        yield
    finally:
        os.close(fd)
