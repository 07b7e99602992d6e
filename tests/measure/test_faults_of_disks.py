"""Disks that are full or read-only at each write, and lines that are not whole: nothing finished is
lost."""

import builtins
import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.campaigns import MACHINE, NAME, put, says
from support.common import make_record

from experiments.stlb_cliff import grid
from tlb.machine.host import Compiler
from tlb.measure import build, machine_states
from tlb.measure.row_database import DATABASE_FILE
from tlb.report import notebooks
from tlb.report.chapter import Chapter
from tlb.system.reasons import Unavailable

pytestmark = [pytest.mark.measures]


# --- a quota that is used up, at each write (test_row_database.py)

NUMBER, CODE = errno.EDQUOT, "disk-refused"


def refuse(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Makes every opening for writing, and every new folder, at or under a path fail."""

    def wrapped(call: Callable[..., Any], writes: Callable[..., bool]) -> Callable[..., Any]:
        def instead(path: Any, *args: Any, **kwargs: Any) -> Any:
            if (
                isinstance(path, str | os.PathLike)
                and Path(path).is_relative_to(folder)
                and writes(*args, **kwargs)
            ):
                raise OSError(NUMBER, os.strerror(NUMBER), str(path))
            return call(path, *args, **kwargs)

        return instead

    def by_flags(flags: int = 0, *_: object, **__: object) -> bool:
        return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))

    def by_mode(mode: str = "r", *_: object, **__: object) -> bool:
        return not set("wax+").isdisjoint(mode)

    patch.setattr(os, "open", wrapped(os.open, by_flags))
    patch.setattr(os, "mkdir", wrapped(os.mkdir, lambda *_, **__: True))
    patch.setattr(io, "open", wrapped(io.open, by_mode))
    patch.setattr(builtins, "open", wrapped(builtins.open, by_mode))


@pytest.mark.slow
@pytest.mark.parametrize(
    "what", ["the rows", "machine.json", "the build folder", "a published machine"]
)
def test_a_disk_that_refuses(tmp_path, monkeypatch, scripted, run, store, what):
    def measure_a_chapter() -> None:
        values = notebooks.check_parameters(
            "stlb_cliff", {"machine": "this", "profile": "smoke", "repeats": 1, "engine": "numba"}
        )
        chapter = Chapter("stlb_cliff", values, store)
        chapter.measure(grid.points(chapter.scope))

    path = store.root / MACHINE / DATABASE_FILE
    folder, act = {
        "the rows": (store.root, lambda: run()),
        "machine.json": (store.root, measure_a_chapter),
        "the build folder": (tmp_path / "build", lambda: build.kernel("page_chase")),
        "a published machine": (store.root, lambda: machine_states.publish(store, MACHINE)),
    }[what]
    if what == "the build folder":
        monkeypatch.setenv("TLB_BUILD", str(folder))
        monkeypatch.setattr(build, "compiler_or_prebuilt", lambda: Compiler(("cc",), "cc 1.0"))
    else:
        scripted()
    if what == "a published machine":
        run()
        put(store.own, MACHINE, NAME, make_record())
    before = path.read_bytes() if path.exists() else b""
    with monkeypatch.context() as patch, pytest.raises(Unavailable) as why:
        refuse(patch, folder)
        act()
    says(why.value, CODE)
    assert (path.read_bytes() if path.exists() else b"") == before
    if what in ("the rows", "machine.json"):
        act()  # the same once more, with room again
        assert (
            sum(
                len(one.load(machine, NAME))
                for one in (store, store.own)
                for machine in one.machines()
            )
            >= 3
        )
