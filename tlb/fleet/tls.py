"""The fleet's certificate: one key and its certificate, shared by all members, which check each
other by it.

Dask sends functions and results pickled, so every member can run programs on every other one. TLS
admits only who holds the key; it does not protect members from each other.
"""

from __future__ import annotations

import os
import ssl
import stat
from contextlib import suppress
from itertools import product
from pathlib import Path
from tempfile import NamedTemporaryFile

from distributed import Security

from tlb.system.files import disk_errors
from tlb.system.reasons import Unavailable


def default() -> Path:
    """Return its path: every-load/fleet.pem in $XDG_STATE_HOME, or in ~/.local/state (XDG Base
    Directory Specification 0.8)."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    root = state if state.is_absolute() else Path.home() / ".local" / "state"
    return root / "every-load" / "fleet.pem"


def shared(path: Path) -> str:
    """Return key and certificate as PEM, made on first use and valid for a year.

    Raises Unavailable: fleet-certificates for a file that others may read or that is something
    else; disk-full, disk-read-only.
    """
    with disk_errors(path):
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            made = Security.temporary()
            with NamedTemporaryFile("w", dir=path.parent, encoding="ascii") as draft:
                draft.write(made.tls_scheduler_key + made.tls_ca_file)
                draft.flush()
                with suppress(FileExistsError):  # of two first uses at once, one wins
                    os.link(draft.name, path)
        status = path.stat()
        if stat.S_IMODE(status.st_mode) & 0o077 or status.st_uid != os.geteuid():
            raise Unavailable("fleet-certificates", f"{path} is not this user's alone")
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(path, password="")
        except ssl.SSLError:
            why = f"{path} is no key with its certificate, as PEM"
            raise Unavailable("fleet-certificates", why) from None
        return path.read_text("ascii")


def security(pem: str) -> Security:
    """Return Dask's settings: encrypted, with both ends proved; without PEM neither."""
    if not pem:
        return Security()
    names = product(("client", "scheduler", "worker"), ("key", "cert"))
    ends = {f"tls_{role}_{part}": pem for role, part in names}
    return Security(require_encryption=True, tls_ca_file=pem, **ends)
