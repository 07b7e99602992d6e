"""The kernel's pools of huge pages: look, reserve, restore.

What is changed is written to a journal first, so that `restore` can put it back after a crash as
well. Beside `machine.borrowed`, nothing else in this project changes a setting of the machine.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from tlb.machine.journal import Journal
from tlb.machine.settings import POOL_FILES, Pool
from tlb.reasons import Unavailable, explain
from tlb.system import files, procfs
from tlb.units import format_size, page_name, parse_size

_POOLS = Path("sys/kernel/mm/hugepages")
_Pages = Annotated[int, Field(ge=0, lt=2**63)]


class Change(BaseModel):
    """What was done to the persistent pages of one pool. `got` is None from before the write until
    its outcome is written down."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    before: _Pages
    asked: _Pages
    got: _Pages | None

    def holds(self, now: int) -> bool:
        """Whether `now` is what this change left; while its outcome is unknown, anything from
        nothing done to all of it."""
        return self.before <= now <= self.asked if self.got is None else now == self.got


_JOURNAL = Journal("every-load-pool", Change, lambda root: look(root), "pool-journal")


class Reserved(NamedTuple):
    """What `reserve` found or made: `wanted` pages were to be free, `free` are. `why` says what is
    missing and the remedy, or ""."""

    page: str
    wanted: int
    free: int
    total: int
    added: int
    why: str


class Restored(NamedTuple):
    """One pool's pages when `restore` came, and after it. `why` says what is not as it was, and the
    remedy, or ""."""

    page: str
    found: int
    total: int
    why: str


def look(root: Path = Path("/")) -> dict[str, Pool]:
    """The pools by page size ("2m", "1g"), the smallest first. A count that cannot be read is
    Unavailable, for it decides a write."""
    folders = procfs.numbered(root / _POOLS, r"hugepages-([0-9]{1,9})kB")
    return {
        page_name(kib * 1024): Pool(
            page=page_name(kib * 1024),
            **{name: _count(folder / f"{file}_hugepages") for name, file in POOL_FILES.items()},
        )
        for kib, folder in folders
    }


def changes(root: Path = Path("/")) -> dict[str, Change]:
    """What the journal says, by page size; {} where nothing is changed. One that cannot be trusted:
    Unavailable("pool-journal")."""
    return _JOURNAL.read(root)


def reserve(page: str, size_bytes: int, root: Path = Path("/")) -> Reserved:
    """Lets the pool of `page` grow until `size_bytes` of it are free; it never shrinks. The kernel
    may give fewer: see `why`.

    A page size without a pool: Unavailable("page-size-unsupported"). Not root: "pool-denied", with
    the command for sudo.
    """
    wanted = -(-size_bytes // _page_bytes(page))
    pool = _pool(root, page)
    if pool.left >= wanted:  # which takes no root
        return Reserved(page, wanted, pool.left, pool.total, 0, "")
    # in the page's own unit, so that it is exact
    whole = f"{wanted * int(page[:-1])}{page[-1].upper()}iB"
    _may_write(root, [page], "reserve", "--pages", page, "--size", whole)
    why = ""
    with _alone(root):
        journal, pool = changes(root), _pool(root, page)
        total, missing = pool.total, wanted - pool.left
        if missing > 0:
            _fits(root, missing * _page_bytes(page))
            # The kernel turns surplus pages, which are in use, into persistent ones before it makes
            # free ones.
            now, asked = _persistent(pool), total + missing
            last = journal.get(page)
            # Of two changes of ours the first knows what was there before. Somebody else's value is
            # what they want back.
            before = last.before if last and last.holds(now) else now
            _write(root, journal | {page: Change(before=before, asked=asked, got=None)})
            refused = _set(root, page, asked)
            pool = _pool(root, page)
            got = _persistent(pool)
            done = {page: Change(before=before, asked=asked, got=got)} if got != before else {}
            _write(
                root, {other: change for other, change in journal.items() if other != page} | done
            )
            if pool.left < wanted:
                why = explain(
                    "pool-short",
                    ", ".join(
                        filter(None, [f"{pool.left} of {wanted} pages of {page} are free", refused])
                    ),
                )
    return Reserved(page, wanted, pool.left, pool.total, pool.total - total, why)


def restore(root: Path = Path("/")) -> list[Restored]:
    """Puts every pool in the journal back to what it was, where its value is still ours; [] where
    nothing was changed.

    Between the look and the write another may change a pool: the kernel offers no way to exclude
    that.
    """
    if not changes(root):
        return []
    done = []
    with _alone(root):
        journal = changes(root)
        _may_write(root, journal, "restore")
        for page, change in list(journal.items()):
            pool = _pool(root, page)
            found, now, why = pool.total, _persistent(pool), ""
            refused = (
                _set(root, page, change.before)
                if change.holds(now) and now != change.before
                else ""
            )
            pool = _pool(root, page)
            if not change.holds(now) and now != change.before:
                # The entry goes: kept, it would undo their setting on the day that it happens to
                # equal ours.
                why = explain("pool-changed", f"{now} pages of {page}, {change.before} before")
                del journal[page]
            elif pool.total > change.before:
                # Pages in use leave the pool when they are let go; until then the entry stays, as
                # what is now there.
                held = ", ".join(
                    filter(None, [f"{pool.total - change.before} pages of {page}", refused])
                )
                why = explain("pool-held", held)
                journal[page] = Change(
                    before=change.before, asked=change.asked, got=_persistent(pool)
                )
            else:
                del journal[page]
            _write(root, journal)
            done.append(Restored(page, found, pool.total, why))
    return done


def _page_bytes(page: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,5}[kmg]", page):
        raise Unavailable(
            "bad-parameter",
            f"pages is the size of a pool's pages, such as 2m or 1g, not {procfs.label(page)!r}",
        )
    return parse_size(page)


def _folder(root: Path, page: str) -> Path:
    return root / _POOLS / f"hugepages-{_page_bytes(page) // 1024}kB"


def _pool(root: Path, page: str) -> Pool:
    flags = (
        procfs.fields(procfs.text(root / "proc/cpuinfo")).get("flags", "").split()
    )  # arm64 has none of that name
    if page == "1g" and flags and "pdpe1gb" not in flags:
        raise Unavailable("page-size-unsupported", "1g, and this CPU lacks pdpe1gb")
    if not (pools := look(root)).get(page):
        raise Unavailable(
            "page-size-unsupported", f"{page}; there are pools of {', '.join(pools) or 'no size'}"
        )
    return pools[page]


def _count(path: Path) -> int:
    number = procfs.number(path)
    if number is None:
        raise Unavailable("page-size-unsupported", f"{path} holds no number")
    return number


def _persistent(pool: Pool) -> int:
    """What a write to nr_hugepages sets. Read, that file in sysfs counts surplus pages too
    (mm/hugetlb.c, nr_hugepages_show_common)."""
    return pool.total - pool.surplus


def _fits(root: Path, size_bytes: int) -> None:
    """Refuses what cannot be there: on the way to it, the kernel would take all memory from
    everybody."""
    available = procfs.kib(
        procfs.fields(procfs.text(root / "proc/meminfo")).get("MemAvailable", "")
    )
    if available is not None and size_bytes > available:
        raise Unavailable(
            "pool-short",
            f"{format_size(size_bytes)} more asked, {format_size(available)} available; nothing was changed",
        )


def _may_write(root: Path, pages: Iterable[str], *arguments: str) -> None:
    """Unavailable("pool-denied") unless this process can write all these pools' sizes; nothing is
    changed by asking."""
    for page in pages:
        try:
            os.close(os.open(_folder(root, page) / "nr_hugepages", os.O_WRONLY | files.OPEN_FLAGS))
        except OSError as error:
            # sudo has a PATH of its own: the program is named in full.
            beside = Path(sys.executable).with_name("tlb")
            program = beside if beside.exists() else Path(sys.argv[0]).absolute()
            raise Unavailable(
                "pool-denied",
                f"{error.strerror}: `{shlex.join(['sudo', str(program), 'pool', *arguments])}`",
            ) from error


def _set(root: Path, page: str, count: int) -> str:
    """Sets a pool's persistent pages; the kernel's words where it refuses, or "".

    The file for all nodes, and none of a node's own: a chapter's process may run on any node, and
    one number can be put back. The kernel spreads what it adds over the nodes with memory, and
    takes from all of them again.
    """
    fd = os.open(_folder(root, page) / "nr_hugepages", os.O_WRONLY | files.OPEN_FLAGS)
    try:
        os.write(fd, b"%d\n" % count)
    except OSError as error:  # EINVAL where a kernel makes pages of 1 GiB only at boot
        return error.strerror or str(error)
    finally:
        os.close(fd)
    return ""


def _write(root: Path, journal: dict[str, Change]) -> None:
    """Replaces the journal in one step, synced; removes it where nothing is left to put back."""
    _JOURNAL.write(root, journal)


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Waits until no other process is in here. The lock is on the kernel's own folder of pools, so
    no file of it can be left behind."""
    fd = os.open(root / _POOLS, os.O_RDONLY | files.OPEN_FLAGS)
    try:
        files.lock(fd)
        yield
    finally:
        os.close(fd)
