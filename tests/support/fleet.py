"""A fleet on one computer: workers, a scheduler and a client as processes that may be killed, and measuring that is made up but the same
whenever it is asked for. In namespaces each worker has a /tmp, processes and a data folder that nobody else sees."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import hashlib
import json
import multiprocessing
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from experiments.fleet import parcel, slot
from experiments.fleet.campaigns import Campaign
from experiments.fleet.certificates import Pass
from experiments.fleet.collected import collecting
from experiments.lab import build, campaign, measure
from experiments.lab.build import Kernel
from experiments.lab.record import Point, Record
from experiments.lab.rig import Rig
from experiments.lab.store import Store
from experiments.machine import host as hosts
from experiments.machine.host import Host
from experiments.system import files
from support.common import make_record
from support.lab import one_by_one
from support.synthetic import Stated

fork = multiprocessing.get_context("fork")
KERNEL = "feedfeedfeedfeed"
POINTS = [Point(kernel=kernel, lines=lines, region_ms=1) for kernel in ("page_chase", "page_gather") for lines in (64, 128, 256)]
GRIDS = {"stlb_cliff": POINTS, "strides": POINTS[1:4]}
GIB = 2**30
PROCESS_S = 0.01  # of a made-up process: long enough to be killed in
CLOCK_S = 3600  # by which a wrong clock is off
_NEWNS, _NEWPID, _REC_PRIVATE, _BIND_REC = 0x20000, 0x20000000, 0x4000 | 0x40000, 0x1000 | 0x4000  # linux/sched.h, linux/mount.h
_PDEATHSIG = 1


class Small(Campaign):
    """A campaign of six points in place of the book's."""

    def grids(self, host: Host) -> dict[str, list[Point]]:
        return GRIDS


CAMPAIGN = Small(profile="quick", repeats=5, seconds=600.0)


def host_of(name: str) -> Host:
    return Stated(changes={"installation": hashlib.sha256(name.encode()).hexdigest()[:16]}).host()


def made_up(name: str, clock_s: int = 0) -> Callable[..., Record]:
    """Stands for measure.measure on a computer: the same record for the same process, whenever and how often it is asked for."""

    def one(point: Point, repeat: int, *, state: str, **_: object) -> Record:
        noise = random.Random(f"{name} {point} {repeat}").uniform(0.998, 1.002)
        time.sleep(PROCESS_S)
        return make_record(**point.model_dump(), repeat=repeat, state=state, seed=measure.seed_of(point, repeat),
                           ns_per_access=5.0 * noise, started_at=f"2025-01-31T{12 + clock_s // 3600}:00:00Z")

    return one


def a_rig(name: str, root: Path, clock_s: int = 0) -> Rig:
    host = host_of(name)
    return Rig(host=host, store=Store(root).own, machine=hosts.machine_id(host), state=hosts.state(host), usable_bytes=GIB,
               measure=one_by_one(made_up(name, clock_s)))


def stand_in(kernel: Kernel | None = None) -> None:
    """In this process nothing is compiled."""
    build.kernel = lambda name, engine="c": kernel or Kernel(name, engine, ("true",), KERNEL)


def plain(name: str, root: Path, clock_s: int = 0) -> dict[str, list[bytes]]:
    """What a campaign by hand gives on that computer, without a fleet: the lines of each kernel, in no order."""
    rig = a_rig(name, root, clock_s)
    for kernel, repeats, most in CAMPAIGN.rounds(GRIDS):
        grids = {experiment: [point for point in points if point.kernel == kernel] for experiment, points in GRIDS.items()}
        campaign.run(rig, grids, repeats, most=most, quiet=True)
    return lines_of(rig.store.root / rig.machine)


def lines_of(folder: Path) -> dict[str, list[bytes]]:
    """The lines of each kernel's rows, sorted, each as often as it is there."""
    return {path.name: sorted(path.read_bytes().splitlines(keepends=True)) for path in sorted(folder.glob("*.jsonl"))}


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


# --- processes


def _libc(call: str, *given: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, call)(*given):
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def enter(own: Path, keep: list[Path], disk_bytes: int, data: Path) -> None:
    """Fresh mount and process namespaces for this process and its child: an own /tmp, in which `keep` stay visible, and a disk of so many
    bytes for `data` (0: as it is)."""
    _libc("unshare", _NEWNS | _NEWPID)
    _libc("mount", None, b"/", None, _REC_PRIVATE, None)
    for path in keep:
        if path.is_relative_to("/tmp"):
            inside = own / path.relative_to("/tmp")
            inside.mkdir(parents=True, exist_ok=True)
            _libc("mount", str(path).encode(), str(inside).encode(), None, _BIND_REC, None)
    _libc("mount", str(own).encode(), b"/tmp", None, _BIND_REC, None)
    if disk_bytes:
        _libc("mount", b"tmpfs", str(data).encode(), b"tmpfs", 0, f"size={disk_bytes}".encode())
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        os._exit(0)
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    _libc("mount", b"proc", b"/proc", b"proc", 0, None)


def quick() -> None:
    """Waits that are for networks, short."""
    from experiments.fleet import courier, nodes

    nodes.AGAIN_S = courier.LOOK_S = courier.PAUSE_S = 0.1
    nodes.QUIET_S = 1.0
    nodes.SETTINGS["distributed.worker-ttl"] = "5s"
    nodes.keep_off = lambda cpu: True


def off_clock(seconds: float) -> None:
    """Every module's clock of this process is wrong by so much: that of the wall, not that of waits."""
    right = time.time
    wrong = lambda: right() + seconds  # noqa: E731
    for module in [*sys.modules.values()]:
        for name, value in [*vars(module).items()] if hasattr(module, "__dict__") else []:
            if value is right:
                with contextlib.suppress(AttributeError, TypeError):
                    setattr(module, name, wrong)


def garbage(kind: str) -> Callable[[str], object]:
    """A worker's `take` that sends what no worker would."""
    real = slot.take

    def take(asked: str) -> object:
        sent = real(asked)
        if not sent["lines"]:
            return sent
        line = sent["lines"][0]
        if kind == "no parcel":
            return ["rows", 1]
        if kind == "a flipped bit":
            sent["lines"][0] = line[:200] + bytes([line[200] ^ 1]) + line[201:]
        elif kind == "a flipped bit, digest and all":
            sent["lines"][0] = flipped = line.replace(b'"ns_per_access":', b'"ns_per_access":1')
            sent["sha256"][0] = hashlib.sha256(flipped).hexdigest()
        elif kind == "another's rows":
            other = json.loads(sent["sender"])
            other["host"]["installation"] = "0" * 16
            sent["sender"] = json.dumps(other)
        return sent

    return take


def work(name: str, address: str, shown: Pass | None, data: Path, *, alike: str = "", own: Path | None = None, disk_bytes: int = 0,
         clock_s: int = 0, sends: str = "", other_version: bool = False) -> None:
    """A worker, by itself: of the computer `alike` where that is not its own name."""
    data.mkdir(parents=True, exist_ok=True)
    if own:
        own.mkdir(parents=True, exist_ok=True)
        enter(own, [files.ROOT, data], disk_bytes, data)
    from experiments.fleet import nodes

    quick()
    stand_in()
    os.environ["TLB_DATA"] = str(data)
    if not own:
        campaign.measuring_lock = lambda: files.measuring_lock(path=data / "lock")
    if clock_s:
        off_clock(clock_s)
    if sends:
        slot.take = garbage(sends)
    if other_version:
        slot.version = lambda: parcel.version() | {"kernels": "000000000000"}
    slot.rig = lambda: a_rig(alike or name, data, clock_s)
    with nodes.configured():
        asyncio.run(nodes.work(address, name, shown, patience_s=60))


def schedule(address: str, shown: Pass | None) -> None:
    from experiments.fleet import nodes

    quick()
    with nodes.configured(distributed__scheduler__worker_ttl="5s"):
        asyncio.run(nodes.serve(address, shown))


def ask(address: str, shown: Pass | None, output: Path, names: list[str], told: Path) -> None:
    """A client; what became of each computer goes into a file once all is done."""
    from experiments.fleet import nodes
    from experiments.fleet.courier import Courier

    quick()
    with nodes.configured(), collecting(output) as collected:
        fleet = asyncio.run(Courier(collected, CAMPAIGN, names, patience_s=60).run(address, shown))
    told.write_text(json.dumps({one.name: [one.why.code, one.why.detail] if one.why else [""] for one in fleet}))


class Processes:
    """What runs, by name; `kill` is -9, and `again` starts the same once more."""

    def __init__(self) -> None:
        self._how: dict[str, tuple[Callable[..., None], tuple, dict]] = {}
        self.running: dict[str, Any] = {}

    def start(self, called: str, what: Callable[..., None], *given: Any, **how: Any) -> None:
        self._how[called] = what, given, how
        self.again(called)

    def again(self, called: str) -> None:
        what, given, how = self._how[called]
        self.running[called] = fork.Process(target=_alone, args=(what, *given), kwargs=how)
        self.running[called].start()

    def kill(self, called: str) -> None:
        self.running[called].kill()
        self.running[called].join()

    def inside(self, called: str) -> int:
        """The process that `enter` started: the worker itself, as it is called outside of its namespaces."""
        return psutil.Process(self.running[called].pid).children()[0].pid

    def end(self) -> None:
        for called in self.running:
            self.kill(called)


def _alone(what: Callable[..., None], *given: Any, **how: Any) -> None:
    """As a program of its own: not the test's handlers, nor its standard streams."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if not os.environ.get("TLB_FLEET_DEBUG"):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
    what(*given, **how)

