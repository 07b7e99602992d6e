"""Run a command in fresh namespaces, as containers do, and prove that they are fresh."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from tlb.system import procfs
from tlb.system.processes import PROBE_TIMEOUT_S, run_in_own_session
from tlb.system.reasons import Unavailable

FRESH_NAMESPACES_MODE = (
    "namespaces"  # the point's mode; only the runner knows it, the kernel has no modes
)
KINDS = ("user", "mnt", "pid", "net")  # as /proc/self/ns names them

# --map-root-user: a user who is not in the map may not even set up the other three. --fork: the
# first process that a new pid namespace can have is a child. --kill-child: that child ends with
# unshare; and setpriv lets unshare end with perf, which leaves what it started alive where it is
# killed itself.
DIE_TOO = ("setpriv", "--pdeathsig", "KILL", "--")
UNSHARE = (
    "unshare",
    "--user",
    "--map-root-user",
    "--mount",
    "--pid",
    "--net",
    "--fork",
    "--kill-child",
    "--",
)
# What unshare of util-linux 2.38 says of a child that SIGKILL ended, and exits with 1: it ends
# itself as its child ended, and resets that signal first, which SIGKILL does not allow. Newer ones
# leave that out. (In the C locale, in which kernels run.)
UNSHARE_KILLED_MESSAGE = "unshare: sigprocmask unblock failed"

_REMEDY = (
    "It needs user, mount, pid and network namespaces: install unshare (apt install util-linux) "
    "and run `sudo sysctl user.max_user_namespaces=10000`; in a container, allow the system calls "
    "unshare and mount."
)

# Settings under /proc/sys of which each forbids user namespaces where it has this value
# (user_namespaces(7); Debian; Ubuntu).
FORBIDDING_VALUES = {
    "user/max_user_namespaces": 0,
    "kernel/unprivileged_userns_clone": 0,
    "kernel/apparmor_restrict_unprivileged_userns": 1,
}

# What runs inside: where it is, a line a namespace; then, whether the program of $1 can be executed
# there. Root in a user namespace has no more right than others have to a folder whose owner is not
# in its map.
LOOK = (
    f'for kind in {" ".join(KINDS)}; do readlink "/proc/self/ns/$kind"; done; '
    'test -x "$1" && echo runs'
)


def namespaces_prefix(program: str) -> tuple[str, ...]:
    """Return the words before a command that run `program` in fresh user, mount, pid and network
    namespaces. Descriptors, exit status and fatal signal stay.

    Proved once a process: inside, each link in /proc/self/ns differs. Raises
    Unavailable("not-permitted") with what forbids them.
    """
    if shutil.which("unshare") is None:
        raise Unavailable("not-permitted", "there is no unshare", _REMEDY)
    return _proved((*(DIE_TOO if shutil.which("setpriv") else ()), *UNSHARE), program)


@cache
def _proved(words: tuple[str, ...], program: str) -> tuple[str, ...]:
    try:
        done = run_in_own_session(
            [*words, "sh", "-c", LOOK, "sh", program], timeout=PROBE_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable("not-permitted", f"unshare gave no answer: {error}", _REMEDY) from None
    last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    inside = dict(line.split(":", 1) for line in done.stdout.splitlines() if ":" in line)
    if not set(KINDS) <= inside.keys():
        raise Unavailable("not-permitted", "; ".join((last, *forbidding_settings())), _REMEDY)
    if same := [
        kind for kind in KINDS if os.readlink(f"/proc/self/ns/{kind}") == f"{kind}:{inside[kind]}"
    ]:
        raise Unavailable("not-permitted", f"unshare left the old ones: {', '.join(same)}", _REMEDY)
    if not done.stdout.endswith("runs\n"):
        raise Unavailable(
            "not-permitted",
            f"{program} cannot be executed in them: open its folders to others (chmod o+x)",
            _REMEDY,
        )
    return words


def forbidding_settings(root: Path = Path("/")) -> list[str]:
    """Return the settings that forbid user namespaces, as "user.max_user_namespaces is 0"."""
    return [
        f"{name.replace('/', '.')} is {value}"
        for name, value in FORBIDDING_VALUES.items()
        if procfs.number(root / "proc/sys" / name) == value
    ]
