"""A journal of what was changed in the kernel's settings, written before each change, so that all
can be put back after a crash too."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from tlb.reasons import Unavailable
from tlb.system import files, procfs

Change = TypeVar("Change", bound=BaseModel)
_BOOT = Path("proc/sys/kernel/random/boot_id")
_MOST_BYTES = 2**16  # a hundred bytes for each of a handful of changes


class _Kept(BaseModel, Generic[Change]):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    boot: str
    changes: dict[str, Change]


class Journal(Generic[Change]):
    """Changes by name, in the order in which they were first made. known: the names that there may
    be, under a root; code: the reason of a journal that cannot be trusted.

    A reboot empties /run (FHS 3.0, 3.15), and so it does what is changed: the journal lives as long
    as what it tells of. Where /run outlives a boot all the same, as in many containers, the journal
    is void by the id of the boot in it.
    """

    def __init__(
        self, name: str, kind: type[Change], known: Callable[[Path], Collection[str]], code: str
    ) -> None:
        self._path, self._kept, self._known, self._code = (
            Path("run") / f"{name}.json",
            _Kept[kind],
            known,
            code,
        )

    def read(self, root: Path) -> dict[str, Change]:
        """What it says; {} where nothing is changed. Raises Unavailable(code)."""
        path = root / self._path
        try:
            fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | files.OPEN_FLAGS)
            try:
                content = os.read(fd, _MOST_BYTES)
            finally:
                os.close(fd)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise Unavailable(self._code, f"{path}: {error.strerror}") from error
        try:
            kept = self._kept.model_validate_json(content)
        except ValidationError as error:
            raise Unavailable(self._code, f"{path} is damaged") from error
        if kept.boot != procfs.word(root / _BOOT):
            return {}
        if unknown := kept.changes.keys() - set(self._known(root)):
            raise Unavailable(
                self._code, f"{path} names what is not there: {procfs.label(min(unknown))}"
            )
        return kept.changes

    def write(self, root: Path, changes: Mapping[str, Change]) -> None:
        """Replaces it in one step, synced; removes it where nothing is left to put back. Raises
        Unavailable(code)."""
        path = root / self._path
        try:
            if changes:
                kept = self._kept(boot=procfs.word(root / _BOOT), changes=dict(changes))
                files.replace(path, kept.model_dump_json().encode() + b"\n")
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise Unavailable(self._code, f"{path}: {error.strerror}") from error
