"""Workers that are started over SSH: a line a computer, and the pass down the pipe, so that no key lies on a disk or in a command line."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from experiments.fleet.certificates import Pass
from experiments.words.reasons import Unavailable

FOLDER = "every-load-is-two-loads"  # of the checkout there, below the home folder
SSH = "ssh -o BatchMode=yes -o ServerAliveInterval=60"
ENDS_S = 5.0  # for ssh to end; what does not is left to itself
AGAIN_S = 30.0  # between two tries to start a worker that ended; the first few come sooner


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
    """The words that start a worker there; its pass comes on stdin."""
    how = "--insecure" if insecure else "--certificates -"
    worker = f".venv/bin/tlb fleet worker {shlex.quote(address)} --name {shlex.quote(listed.host)} --patience {patience_s / 60:g} {how}"
    return [*shlex.split(ssh), listed.host, f"cd {shlex.quote(listed.folder)} && exec {worker}"]


async def keep(words: Sequence[str], shown: Pass | None) -> None:
    """Start a worker, and again whenever it ends; it is ended with this call."""
    tries = 0
    while True:
        process = await asyncio.create_subprocess_exec(*words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
                                                       start_new_session=True)
        try:
            with suppress(OSError):
                await process.communicate(shown.text.encode() if shown else b"")
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.terminate()
                with suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), ENDS_S)
        tries += 1
        await asyncio.sleep(min(tries, AGAIN_S))
