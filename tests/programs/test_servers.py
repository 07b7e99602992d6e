"""Servers with a driver: who is measured, who is looked at, and that neither is left, however it
ends."""

import os
import re
import sys
import time

import pytest
from support.common import LONG_S, alive, refusal

from tlb.programs import children, runs
from tlb.programs.levers import LEVERS
from tlb.programs.runs import (
    ProgramRun,
    RunConditions,
    ServerDriver,
    accepts_connections,
    run_program,
)
from tlb.programs.snapshots import at_peak
from tlb.programs.trial import Trial, TrialAim
from tlb.programs.trial_report import trial_remarks
from tlb.system.reasons import Unavailable

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="programs are looked at in /proc"),
    pytest.mark.usefixtures("nothing_is_left"),
]
# Answers each connection with a variable of its environment, and holds 40 MiB; argument 2: what it
# does first.
SERVER = """import os, signal, socket, sys, time
path, first = sys.argv[1:]
exec(first)
held = bytearray(40 << 20); held[::512] = held[1::512]
with socket.socket(socket.AF_UNIX) as server:
    server.bind(path)
    server.listen()
    print("ready", flush=True)
    while True:
        connection, _ = server.accept()
        connection.sendall(os.environ.get("ANSWER", "plain").encode())
        connection.close()
"""
DRIVER = """import os, socket, sys, time
held = bytearray(90 << 20); held[::512] = held[1::512]
with socket.socket(socket.AF_UNIX) as client:
    client.connect(sys.argv[1])
    print(client.recv(99).decode(), os.environ.get("ANSWER"), "took 12.5 s")
time.sleep(float(sys.argv[2])); sys.exit(int(sys.argv[3]))
"""


@pytest.fixture
def address(tmp_path) -> str:
    return os.path.relpath(tmp_path / "s")  # a socket's whole path may be too long


CLEAN = "os.path.exists(path) and os.unlink(path)"


def server(address: str, first: str = CLEAN) -> list[str]:
    return [sys.executable, "-c", SERVER, address, first]


def driver(address: str, hold_s: float = 0.3, status: int = 0, ready: str = "") -> ServerDriver:
    return ServerDriver(
        [sys.executable, "-c", DRIVER, address, str(hold_s), str(status)],
        re.compile(ready) if ready else None,
    )


def ran(
    command: list[str],
    by: ServerDriver,
    using: str = "none",
    limit_s: float = LONG_S,
    **how: object,
) -> ProgramRun:
    return run_program(command, LEVERS[using], driver=by, limit_s=limit_s, share=0.3, **how)


@pytest.mark.parametrize("ready", ["", "rea.y"])
def test_the_driver_is_measured_and_the_server_is_looked_at(address, ready):
    conditions = RunConditions(metric=re.compile("took (.*) s"))
    for hold_s in (0.3, 3.0, 30.0):  # a busy machine takes snapshots late
        begin = time.monotonic()
        begins = f"time.sleep(0.5); {CLEAN}"
        by = driver(address, hold_s=hold_s, status=3, ready=ready)
        done = ran(server(address, begins), by, conditions=conditions)
        whole_s = time.monotonic() - begin
        most = at_peak(done.snapshots)
        if most and most.pages.anonymous_bytes >= 40 << 20:
            break
    assert (done.status, done.number.grouped, done.left, done.killed) == (3, 12.5, 0, False)
    assert 0.3 < done.elapsed_s < whole_s - 0.5 and done.written[0].size_bytes == len(
        "plain None took 12.5 s\n"
    )
    assert (
        most.processes == 1 and 40 << 20 <= most.pages.anonymous_bytes < 80 << 20
    )  # the driver holds 90
    assert done.minor_faults * os.sysconf("SC_PAGE_SIZE") > 40 << 20


def test_a_server_that_does_not_end_when_asked_is_killed_and_that_is_said(address, monkeypatch):
    monkeypatch.setattr(children, "GRACE_S", 0.2)
    stubborn = ran(
        server(address, "signal.signal(signal.SIGTERM, signal.SIG_IGN)"), driver(address)
    )
    assert (stubborn.status, stubborn.killed) == (0, True)
    trial = Trial(
        TrialAim(["server"], LEVERS["none"], driver=driver(address)), (stubborn, stubborn), 16
    )
    assert any("SIGTERM" in remark and "2 runs" in remark for remark in trial_remarks(trial))


@pytest.mark.parametrize("unseen, ends", [(2, False), (9, True)])
def test_a_server_that_a_look_misses_on_its_way_into_the_background_has_not_ended(
    unseen, ends, monkeypatch
):
    """A list of processes is no snapshot."""
    monkeypatch.setattr(runs, "accepts_connections", lambda pid: True)
    looks = iter([{}] * unseen + [{4321: True}] * 9)
    if not ends:
        runs.wait_until_ready(
            [], ServerDriver(["true"]), lambda: next(looks), time.monotonic() + LONG_S
        )
        return
    assert (
        refusal(
            lambda: runs.wait_until_ready(
                [], ServerDriver(["true"]), lambda: next(looks), time.monotonic() + LONG_S
            )
        )
        == "program-killed"
    )


@pytest.mark.parametrize(
    ("first", "ready", "code"),
    [
        ("sys.exit(0)", "", "program-killed"),
        ("time.sleep(95.25)", "", "no-time"),
        ("", "never written", "no-time"),
    ],
)
def test_a_server_that_is_never_ready_is_one_reason(address, first, ready, code):
    limit_s = 0.8 if code == "no-time" else LONG_S
    assert (
        refusal(lambda: ran(server(address, first), driver(address, ready=ready), limit_s=limit_s))
        == code
        and alive("95.25") == []
    )


def test_a_server_that_fails_under_its_driver_has_measured_nothing(address):
    with pytest.raises(Unavailable) as why:
        ran(
            server(
                address,
                "import select; socket.socket.accept = "
                "lambda self: select.select([self], [], []) and os._exit(7)",
            ),
            driver(address, hold_s=2.0),
        )
    assert (why.value.code, "7" in why.value.detail) == ("program-killed", True)


@pytest.mark.parametrize("command", [["sleep", "96.25"], ["/nonexistent/driver"]])
def test_a_driver_that_never_ends_or_starts_leaves_no_server(address, command):
    with pytest.raises(Unavailable) as why:
        ran(server(address), ServerDriver(command), limit_s=1.0)
    assert why.value.code in ("no-time", "program-missing") and alive("96.25") == []


def test_who_listens_is_seen_by_its_sockets(tmp_path):
    for pid, fd in (
        (7, "socket:[41]"),
        (8, "socket:[42]"),
        (9, "socket:[43]"),
        (10, "socket:[44]"),
        (11, "/dev/null"),
    ):
        (tmp_path / f"{pid}/fd").mkdir(parents=True)
        (tmp_path / f"{pid}/fd/3").symlink_to(fd)
        (tmp_path / f"{pid}/net").mkdir()
        (tmp_path / f"{pid}/net/tcp").write_text(
            "head\n 0: 0100007F:1F90 00000000:0000 0A 0:0 00:0 00000000 0 0 41 1 0 100\n"
            " 1: 0100007F:1F90 0100007F:9999 01 0:0 00:0 00000000 0 0 42 1 0 100\n"
        )
        (tmp_path / f"{pid}/net/unix").write_text(
            "head\n0: 00000002 00000000 00010000 0001 01 43 /s\n"
            "0: 00000002 00000000 00000000 0001 01 44\n"
        )
    assert [accepts_connections(pid, tmp_path) for pid in range(7, 13)] == [
        True,
        False,
        True,
        False,
        False,
        False,
    ]
