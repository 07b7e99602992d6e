"""Other computers: huge pages, a KVM and settings that this one need not have, put before each
kernel (LD_PRELOAD).

Fixtures of it are named in the conftest.py of the folder that uses them.
"""

import ctypes
import dataclasses
import multiprocessing
import os
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.common import LONG_S, preloadable
from tlb.machine.host import compiler_on_path
from tlb.measure import build, toolchains

PAGE = {"4k": 2**12, "64k": 2**16, "thp": 2**21, "2m": 2**21, "1g": 2**30}


class Files:
    """What a stand-in shows: `set` writes a file, `lacks` takes one away or a folder."""

    folder: Path

    def set(self, path: str, value: object) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(f"{value}\n")

    def lacks(self, path: str) -> None:
        subprocess.run(["rm", "-r", self.folder / path], check=True)


class Machine(Files):
    """The files of the machine that tests/support/other_machine.c shows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        settings = {
            "enabled": "always [madvise] never",
            "hpage_pmd_size": 2**21,
            "hugepages-64kB/enabled": "[madvise] never",
            "hugepages-64kB/stats/anon_fault_alloc": 0,
            "hugepages-64kB/stats/anon_fault_fallback": 0,
        }
        for path, text in settings.items():
            self.set(f"mm/transparent_hugepage/{path}", text)
        for pages in ("2m", "1g"):
            self.pool(pages, 64)

    def pool(self, pages: str, free: int) -> None:
        for file, count in {"nr": 64, "free": free, "resv": 0}.items():
            self.set(f"mm/hugepages/hugepages-{PAGE[pages] >> 10}kB/{file}_hugepages", count)


def put_before(monkeypatch, *words: str) -> None:
    """Each kernel's command is run by these words, alone and as a session."""
    real, session = build.kernel, build.session

    def put(name: str, engine: Any = "c") -> build.Kernel:
        kernel = real(name, engine)
        return dataclasses.replace(kernel, command=(*words, *kernel.command))

    monkeypatch.setattr(build, "kernel", put)
    monkeypatch.setattr(build, "has_session", lambda point: False)
    monkeypatch.setattr(build, "session", lambda name, engine: (*words, *session(name, engine)))


@pytest.fixture
def no_tools(tmp_path, monkeypatch) -> Path:
    """An empty PATH, no C compiler, and an empty place for binaries. Returns the folder that PATH
    names."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(toolchains, "compiler_on_path", compiler_on_path.__wrapped__)
    monkeypatch.setenv("TLB_BUILD", str(tmp_path / "built"))
    return folder


@pytest.fixture(scope="session")
def other_machine(tmp_path_factory) -> Path:
    """tests/support/other_machine.c, compiled."""
    return preloadable("other_machine", tmp_path_factory)


@pytest.fixture(scope="session")
def other_kvm(tmp_path_factory) -> Path:
    """tests/support/other_kvm.c, compiled."""
    return preloadable("other_kvm", tmp_path_factory)


@pytest.fixture
def machine(tmp_path, other_machine, monkeypatch) -> Machine:
    """The other machine, which lacks nothing yet; every kernel runs on it."""
    there = Machine(tmp_path / "other")
    put_before(monkeypatch, "env", f"LD_PRELOAD={other_machine}", f"OTHER_MACHINE={there.folder}")
    return there


@pytest.fixture
def kvm(other_kvm, monkeypatch) -> Callable[..., None]:
    """Says what the other machine's KVM is like: kvm(exit=8). Every kernel runs on it, at first as
    on one that lacks nothing."""
    put_before(monkeypatch, "env", f"LD_PRELOAD={other_kvm}")

    def like(**words: int) -> None:
        monkeypatch.setenv(
            "OTHER_KVM", " ".join(f"{name}={number}" for name, number in words.items())
        )

    like()
    return like


@pytest.fixture
def hosted(tmp_path, other_machine, other_kvm, monkeypatch) -> Machine:
    """The other machine's huge pages and its KVM."""
    there = Machine(tmp_path / "other")
    put_before(
        monkeypatch,
        "env",
        f"LD_PRELOAD={other_kvm}:{other_machine}",
        f"OTHER_MACHINE={there.folder}",
    )
    return there


class _Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_void_p)]


def seccomp(number: int, error: int) -> None:
    """Let a system call of this process and its children fail, as a container's filter does, or end
    with status 99 where Linux refuses (seccomp(2): load the number, compare, return the error or
    allow)."""
    steps = [
        (0x20, 0, 0, 0),
        (0x15, 0, 1, number),
        (6, 0, 0, 0x50000 | error),
        (6, 0, 0, 0x7FFF0000),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program, libc = _Filter(len(steps), ctypes.addressof(code)), ctypes.CDLL(None)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(program), 0, 0):
        os._exit(99)  # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP


def in_a_child(work: Callable[[], Any]) -> Any:
    """What `work` returns in a process of its own, whose limits, mask and user it may change."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()

    def target() -> None:
        try:
            there.send(work())
        except BaseException as error:
            there.send(error)

    child = context.Process(target=target)
    child.start()
    answer = here.recv() if here.poll(LONG_S) else TimeoutError("no answer")
    child.kill()
    child.join()
    if isinstance(answer, BaseException):
        raise answer
    return answer
