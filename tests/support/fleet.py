"""A fleet on one computer: workers, a scheduler and a client as processes that may be killed, and
measurements that are made up but the same whenever they are asked for. In namespaces each worker
has a /tmp, processes and a data folder that nobody else sees."""

import asyncio
import contextlib
import ctypes
import hashlib
import json
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.overview import campaign as book
from experiments.overview import profile
from support import bundles
from support.campaigns import one_by_one
from support.common import LONG_S, fake_kernel
from support.synthetic import Stated
from tlb.machine import host as hosts
from tlb.machine.host import Host
from tlb.measure import build, campaign
from tlb.measure.measuring_setup import Rig
from tlb.measure.plan import seed_of
from tlb.measure.record import Point, Record
from tlb.measure.store import Store
from tlb.report import claims
from tlb.report.chapter import Chapter
from tlb.system import files

fork = multiprocessing.get_context("fork")
POINTS = [
    Point(kernel="page_chase", lines=lines, layout=layout)
    for lines in (64, 128, 256)
    for layout in ("spread", "packed")
]
GRIDS = {"stlb_cliff": POINTS, "tlb_blocking": POINTS[1:4]}
GIB = 2**30
PROCESS_S = 0.01  # of a made-up process: long enough to be killed in
_NEWNS, _NEWPID, _REC_PRIVATE, _BIND_REC = (
    0x20000,
    0x20000000,
    0x4000 | 0x40000,
    0x1000 | 0x4000,
)  # linux/sched.h, linux/mount.h
_PDEATHSIG = 1


def host_of(name: str) -> Host:
    changes = {
        "cpu_model": "Intel Xeon 9000",
        "installation": hashlib.sha256(name.encode()).hexdigest()[:16],
    }
    return Stated(changes=changes).host()


def machine_of(name: str) -> str:
    return hosts.machine_id(host_of(name))


def made_up(name: str, hour: int = 12) -> Callable[..., Record]:
    """Stands for plan.measure on a computer: the same record for the same process, whenever and
    how often it is asked for."""

    def one(point: Point, repeat: int, *, state: str, **_: object) -> Record:
        rng = random.Random(f"{name} {point} {repeat}")
        time.sleep(PROCESS_S)
        seed = seed_of(point, repeat)
        return bundles.row(
            point.lines,
            point.layout,
            repeat,
            state=state,
            ns_per_access=6.5,
            wall_ns=1.2e8 + rng.randrange(10**8),
            checksum=f"{seed:016x}"[:16],
            started_at=f"2025-01-31T{hour}:{repeat:02}:00Z",
            arena_bytes=4096 * point.lines,
            page_table_bytes=8 * 4096,
        )

    return one


def a_rig(name: str, root: Path, hour: int = 12) -> Rig:
    host = host_of(name)
    return Rig(
        host=host,
        store=Store(root).own,
        machine=hosts.machine_id(host),
        state=hosts.state(host),
        usable_bytes=GIB,
        measure=one_by_one(made_up(name, hour)),
    )


def pretend(name: str, root: Path, hour: int = 12) -> None:
    """Make this process measure as that computer, without compiling, and make profiles say nothing,
    which takes no time."""
    build.kernel = fake_kernel()
    build.has_session = lambda point: False
    profile.of_chapter = lambda chapter: profile.Profile(machine=chapter.machine, quantities=())
    claims.compared_points = lambda scope: lambda point: True
    hosts.inspect = lambda *_, **__: host_of(name)
    book.grids_of = lambda scope, names=None: GRIDS
    rig = a_rig(name, root, hour)
    Chapter.rig = property(lambda chapter: _described(rig))
    os.environ["TLB_DATA"] = str(root)


def _described(rig: Rig) -> Rig:
    from tlb.measure import states

    states.write_description(rig.store, rig.machine, rig.host)
    return rig


def by_hand(name: str, root: Path, hour: int = 12) -> list[str]:
    """What a campaign by hand gives on that computer, without a fleet, in no order."""
    rig = a_rig(name, root, hour)
    campaign.run(rig, GRIDS, 5, most=campaign.most_mappings(5), quiet=True)
    return rows_of(rig.store.root / rig.machine)


def rows_of(folder: Path) -> list[str]:
    """The rows of a machine's folder, sorted, each as often as it is there."""
    records = Store(folder.parent).records(folder.name).values()
    return sorted(record.model_dump_json() for record in records)


# --- processes


def _libc(call: str, *given: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, call)(*given):
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def enter(own: Path, keep: list[Path], disk_bytes: int, data: Path) -> None:
    """Fresh mount and process namespaces for this process and its child: an own /tmp, in which
    `keep` stay visible, and a disk of so many bytes for `data` (0: as it is)."""
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
    from tlb.fleet import client, worker

    worker.configure()
    worker.AGAIN_S = client.POLL_S = client.PAUSE_S = 0.1
    worker._keep_off = lambda cpu: None


def off_clock(seconds: float) -> None:
    """Every module's clock of this process is wrong by so much: that of the wall, not that of
    waits."""
    right = time.time
    for module in [*sys.modules.values()]:
        for name, value in [*vars(module).items()] if hasattr(module, "__dict__") else []:
            if value is right:
                with contextlib.suppress(AttributeError, TypeError):
                    setattr(module, name, lambda: right() + seconds)


def garbage(kind: str) -> Callable[[str], object]:
    """A worker's `measure` that sends what no worker would."""
    from tlb.fleet import check, worker

    real = worker.measure

    def measured(asked: str) -> object:
        sent = real(asked)
        if kind == "no bundle":
            return ["rows", 1]
        if kind == "a flipped bit":
            flipped = bytearray(sent.bundle)
            flipped[len(flipped) // 2] ^= 1
            return sent._replace(bundle=bytes(flipped))
        files = dict(check.opened(sent.bundle).files)
        files["page_chase.jsonl"] = files["page_chase.jsonl"].replace(
            b'"ns_per_access":', b'"ns_per_access":1', 1
        )
        return sent._replace(bundle=check.sealed(check.opened(sent.bundle).machine, files))

    return measured


def work(
    name: str,
    address: str,
    pem: str,
    data: Path,
    *,
    alike: str = "",
    own: Path | None = None,
    disk_bytes: int = 0,
    hour: int = 12,
    sends: str = "",
) -> None:
    """A worker, by itself: of the computer `alike` where that is not its own name."""
    data.mkdir(parents=True, exist_ok=True)
    if own:
        own.mkdir(parents=True, exist_ok=True)
        enter(own, [files.ROOT, data], disk_bytes, data)
    from tlb.fleet import worker

    quick()
    pretend(alike or name, data, hour)
    if not own:
        campaign.measuring_lock = lambda: files.measuring_lock(path=data / "lock")
    if hour != 12:
        off_clock(3600 * (hour - 12))
    if sends:
        liar = garbage(sends)
        worker.measure = lambda asked: liar(asked)
    asyncio.run(worker.work(address, name, pem, patience_s=LONG_S))


def schedule(address: str, pem: str) -> None:
    from tlb.fleet import worker

    quick()
    asyncio.run(worker.serve(address, pem))


def ask(address: str, pem: str, output: Path, names: list[str], told: Path) -> None:
    """A client; what became of each computer goes into a file once all is done."""
    from tlb.fleet.client import Fleet
    from tlb.fleet.worker import Campaign

    quick()
    pretend("client", output.parent / "client")
    fleet = Fleet(Store(output), Campaign(), len(names), patience_s=LONG_S)
    asyncio.run(fleet.run(address, pem))
    whys = {one.name: one.why for one in fleet.computers.values()}
    ends = {name: [why.code, why.detail] if why else [""] for name, why in whys.items()}
    told.write_text(json.dumps(ends))


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
