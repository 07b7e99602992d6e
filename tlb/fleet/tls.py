"""The fleet's certificate: one key and its certificate, which every member shows and checks the
others by.

Dask sends functions and results pickled, so anyone who may speak in the fleet can run programs on
all of it. TLS admits only who holds the key. It does not tell members apart: a fleet is as trusted
as its least trusted member.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import NamedTemporaryFile

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from distributed import Security

from tlb.reasons import Unavailable
from tlb.system.files import disk_errors

DAYS = 3650


def default() -> Path:
    """Return where it lies: every-load/fleet.pem in $XDG_STATE_HOME, or ~/.local/state (XDG Base
    Directory Specification 0.8)."""
    state = os.environ.get("XDG_STATE_HOME", "")
    return (
        (Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state")
        / "every-load"
        / "fleet.pem"
    )


def shared(path: Path) -> str:
    """Return key and certificate as PEM, made on first use. Raises Unavailable: fleet-certificates
    for a file that others may read, or that is something else; disk-full, disk-read-only."""
    with disk_errors(path):
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with (
                NamedTemporaryFile("w", dir=path.parent, encoding="ascii") as draft,
                suppress(FileExistsError),
            ):
                draft.write(_made())
                draft.flush()
                os.link(draft.name, path)  # of two first uses at once, one wins
        status = path.stat()
        if stat.S_IMODE(status.st_mode) & 0o077 or status.st_uid != os.geteuid():
            raise Unavailable("fleet-certificates", f"{path} is not this user's alone")
        return checked(path.read_text("latin-1"))


def checked(pem: str) -> str:
    """Return it if it is a key and a certificate. Raises Unavailable("fleet-certificates")."""
    try:
        serialization.load_pem_private_key(pem.encode(), None)
        x509.load_pem_x509_certificate(pem.encode())
    except (ValueError, TypeError):
        raise Unavailable(
            "fleet-certificates", "it is no key with its certificate, as PEM"
        ) from None
    return pem


def security(pem: str) -> Security:
    """Return Dask's: encrypted, with both ends proved; without PEM neither."""
    if not pem:
        return Security()
    at = pem.index("-----BEGIN CERTIFICATE")
    parts = {"key": pem[:at], "cert": pem[at:]}
    ends = {
        f"tls_{role}_{part}": text
        for role in ("client", "scheduler", "worker")
        for part, text in parts.items()
    }
    return Security(require_encryption=True, tls_ca_file=pem[at:], **ends)


def _made() -> str:
    """Return a new key and its certificate (RFC 5280), valid from a day ago, since the clocks of a
    fleet differ."""
    key, name = (
        ec.generate_private_key(ec.SECP256R1()),
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "every-load fleet")]),
    )
    now, pem = datetime.now(UTC), serialization.Encoding.PEM
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(
        now + timedelta(days=DAYS)
    )
    certificate = builder.sign(key, hashes.SHA256())
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return (private + certificate.public_bytes(pem)).decode()
