"""Workers that are started over SSH: a line a computer, and the certificate down the pipe, so that
no key lies on a disk there.

The pipe stays open, and the worker ends when it does: with ssh, with the client however it died, or
with the connection. Nothing else would tell it, since a program that ssh starts without a terminal
gets no signal.
"""

from __future__ import annotations

import asyncio
import shlex
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tlb.reasons import Unavailable

FOLDER = "every-load-is-two-loads"  # of the checkout there, below the home folder
# no terminal, no question, no endless wait
SSH = "ssh -T -o BatchMode=yes -o ConnectTimeout=30 -o ServerAliveInterval=60"
ENDS_S = 5.0  # for ssh to end; what does not is left to itself
AGAIN_S = 30.0  # between two tries to start a worker that ended; the first few come sooner
MOST_BYTES = 2000  # of what ssh and the worker print: why it ended stands at the end


def read_hosts(path: Path) -> dict[str, str]:
    """Return the checkout's folder by host, of a file with `HOST [FOLDER]` a line, # for comments.
    Raises Unavailable("bad-parameter")."""
    hosts: dict[str, str] = {}
    try:
        rows = [shlex.split(line, comments=True) for line in path.read_text("utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise Unavailable(
            "bad-parameter", f"{path}: {getattr(error, 'strerror', None) or error}"
        ) from None
    for number, words in enumerate(rows, 1):
        if len(words) > 2 or (
            words and words[0].startswith("-")
        ):  # which ssh would take for an option
            raise Unavailable("bad-parameter", f"line {number} of {path} is not HOST [FOLDER]")
        if words:
            hosts.setdefault(words[0], words[1] if len(words) == 2 else FOLDER)
    if not hosts:
        raise Unavailable("bad-parameter", f"{path} lists no host")
    return hosts


def command(
    host: str, folder: str, address: str, ssh: str, *, insecure: bool, patience_s: float
) -> list[str]:
    """Return the words that start a worker there; its certificate comes on stdin, with which it
    ends."""
    how = "--insecure" if insecure else "--certificate -"
    where = f"{shlex.quote(address)} --name {shlex.quote(host)}"
    worker = f".venv/bin/tlb fleet worker {where} --patience {patience_s / 60:g} --tied {how}"
    return [*shlex.split(ssh), host, f"cd {shlex.quote(folder)} && exec {worker}"]


async def keep(words: Sequence[str], pem: str, complain: Callable[[str], None]) -> None:
    """Start a worker, and again whenever it ends, until cancelled. complain: called with the last
    line that was printed, if it failed."""
    tries = 0
    while True:
        process = await asyncio.create_subprocess_exec(
            *words, stdin=PIPE, stdout=DEVNULL, stderr=PIPE, start_new_session=True
        )
        try:
            line = await _last_line(process, pem.encode())
            if await process.wait():
                complain(line or f"It ended with status {process.returncode}.")
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError, TimeoutError):
                    process.terminate()
                    await asyncio.wait_for(process.wait(), ENDS_S)
        tries += 1
        await asyncio.sleep(min(tries, AGAIN_S))


async def _last_line(process: asyncio.subprocess.Process, given: bytes) -> str:
    """Give a process its stdin, which stays open, and return what it printed last on stderr before
    it closed that."""
    assert process.stdin and process.stderr
    with suppress(OSError):
        process.stdin.write(given)
        await process.stdin.drain()
    tail = b""
    while piece := await process.stderr.read(MOST_BYTES):
        tail = (tail + piece)[-MOST_BYTES:]
    lines = tail.decode("utf-8", "replace").strip().splitlines()
    return (
        "".join(letter if letter.isprintable() else " " for letter in lines[-1])[:200]
        if lines
        else ""
    )
