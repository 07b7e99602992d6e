"""Workers that are started over SSH: a line a computer, and the pass down the pipe, so that no key lies on a disk or in a command line.

The pipe stays open, and the worker ends where it does: with ssh, with the client however it died, or with the connection between. Nothing
else would tell it, for a program that ssh starts without a terminal gets no signal.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from experiments.fleet.certificates import Pass
from experiments.words.reasons import Unavailable

FOLDER = "every-load-is-two-loads"  # of the checkout there, below the home folder
SSH = "ssh -T -o BatchMode=yes -o ConnectTimeout=30 -o ServerAliveInterval=60"  # no terminal, no question, no endless wait
ENDS_S = 5.0  # for ssh to end; what does not is left to itself
AGAIN_S = 30.0  # between two tries to start a worker that ended; the first few come sooner
MOST_BYTES = 2000  # of what ssh and the worker print: why it ended stands at the end
MOST_CHARACTERS = 200  # of that


class Listed(NamedTuple):
    """A line of the file of hosts: as ssh calls it, and where its checkout is."""

    host: str
    folder: str


def read_hosts(path: Path) -> list[Listed]:
    """`HOST [FOLDER]` a line, # for comments. One that is there twice is one. Raises Unavailable("bad-parameter")."""
    try:
        rows = [shlex.split(line, comments=True) for line in path.read_text("utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise Unavailable("bad-parameter", f"{path}: {getattr(error, 'strerror', None) or error}") from None
    hosts: dict[str, Listed] = {}
    for number, words in enumerate(rows, 1):
        if len(words) > 2 or (words and words[0].startswith("-")):  # which ssh would take for an option
            raise Unavailable("bad-parameter", f"line {number} of {path} is not HOST [FOLDER]")
        if words:
            hosts.setdefault(words[0], Listed(words[0], words[1] if len(words) == 2 else FOLDER))
    if not hosts:
        raise Unavailable("bad-parameter", f"{path} lists no host")
    return [*hosts.values()]


def command(listed: Listed, address: str, ssh: str, *, insecure: bool, patience_s: float) -> list[str]:
    """The words that start a worker there; its pass comes on stdin, with which it ends."""
    how = "--tied --insecure" if insecure else "--tied --certificates -"
    worker = f".venv/bin/tlb fleet worker {shlex.quote(address)} --name {shlex.quote(listed.host)} --patience {patience_s / 60:g} {how}"
    return [*shlex.split(ssh), listed.host, f"cd {shlex.quote(listed.folder)} && exec {worker}"]


async def keep(words: Sequence[str], shown: Pass | None, complain: Callable[[str], None] = lambda words: None) -> None:
    """Start a worker, and again whenever it ends; it is ended with this call. complain: called with the last line that ssh or the worker
    printed, where it ended otherwise than in order."""
    tries = 0
    while True:
        process = await asyncio.create_subprocess_exec(*words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
                                                       stderr=asyncio.subprocess.PIPE, start_new_session=True)
        try:
            line = await _last_line(process, shown.text.encode() if shown else b"")
            if await process.wait():
                complain(line or f"It ended with status {process.returncode}.")
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.terminate()
                with suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), ENDS_S)
        tries += 1
        await asyncio.sleep(min(tries, AGAIN_S))


async def _last_line(process: asyncio.subprocess.Process, given: bytes) -> str:
    """What a process that was given its stdin, which stays open, printed last on stderr before it closed that."""
    assert process.stdin and process.stderr
    with suppress(OSError):
        process.stdin.write(given)
        await process.stdin.drain()
    tail = b""
    while piece := await process.stderr.read(MOST_BYTES):
        tail = (tail + piece)[-MOST_BYTES:]
    lines = tail.decode("utf-8", "replace").strip().splitlines()
    return "".join(letter if letter.isprintable() else " " for letter in lines[-1])[:MOST_CHARACTERS] if lines else ""
