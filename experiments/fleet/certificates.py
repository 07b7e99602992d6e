"""The fleet's own certificates: one authority that stays with whoever asks, and one member's certificate that all ends show each other.

Dask sends functions and results pickled, so whoever may speak in the fleet runs programs on all of it. TLS lets in those alone who hold a
certificate of this authority, on both ends, and nobody between them reads or changes a byte. It does not tell one member from another: a
worker that was broken into may send what it likes to all, so a fleet is as trusted as its least trusted member.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from experiments.system.files import OPEN_FLAGS, disk_errors, lock, replace
from experiments.words.reasons import Unavailable

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

AUTHORITY_DAYS, MEMBER_DAYS = 3650, 365
RENEWED_DAYS = 30  # before a member's certificate ends a new one is made, so that no campaign outlives it
_MODE = 0o600  # of all four
AUTHORITY, AUTHORITY_KEY, MEMBER, MEMBER_KEY = "authority.pem", "authority-key.pem", "member.pem", "member-key.pem"


class Pass(NamedTuple):
    """What a member shows and checks others by, as PEM: it fits into a pipe, so that no file of it need lie on a worker."""

    authority: str
    certificate: str
    key: str

    @property
    def text(self) -> str:
        return "".join(self)


def folder() -> Path:
    """Where they lie: every-load/fleet in $XDG_STATE_HOME, or ~/.local/state (XDG Base Directory Specification 0.8)."""
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state") / "every-load" / "fleet"


def member(at: Path | None = None) -> Pass:
    """The pass of this computer, made on first use, and anew before it ends. Raises Unavailable: fleet-certificates for a folder that
    others may look into, or that holds a part; disk-full, disk-read-only. A read-only mount may be open where its key is not: the folder
    of a Kubernetes secret has mode 1777 whatever is asked for."""
    at = at or folder()
    with disk_errors(at):
        at.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(at, os.O_RDONLY | OPEN_FLAGS)
        try:
            lock(descriptor)  # two first uses at once make one authority
            if not (_own(descriptor) or (os.fstatvfs(descriptor).f_flag & os.ST_RDONLY and _own(at / MEMBER_KEY))):
                raise Unavailable("fleet-certificates", f"{at} is not this user's alone")
            if not (at / AUTHORITY).exists():
                _make_authority(at)
            if _ends_soon(at / MEMBER) and (at / AUTHORITY_KEY).exists():
                _make_member(at)
            return Pass(*(_read(at / name) for name in (AUTHORITY, MEMBER, MEMBER_KEY)))
        finally:
            os.close(descriptor)


def read_pass(text: str) -> Pass:
    """From a pipe. Raises Unavailable("fleet-certificates")."""
    parts = [part + "-----\n" for part in text.split("-----\n") if part.strip()]
    blocks = ["".join(parts[i:i + 2]) for i in range(0, len(parts), 2)]
    if len(blocks) != 3 or not all(block.startswith("-----BEGIN ") for block in blocks):
        raise Unavailable("fleet-certificates", "what came down the pipe is no three of PEM")
    return Pass(*blocks)


def from_pipe(lines: Iterable[str]) -> Pass:
    """The pass with which a pipe begins, that need not end with it. Raises Unavailable("fleet-certificates")."""
    text, blocks = "", 0
    for line in lines:
        text, blocks = text + line, blocks + line.startswith("-----END ")
        if blocks == len(Pass._fields):
            break
    return read_pass(text)


def _own(file: int | Path) -> bool:
    """Whether it is there, this user's, and closed to others."""
    with suppress(FileNotFoundError):
        status = os.stat(file)
        return not stat.S_IMODE(status.st_mode) & 0o077 and status.st_uid == os.geteuid()
    return False


def _read(path: Path) -> str:
    try:
        return path.read_text("ascii")
    except (OSError, UnicodeDecodeError):
        raise Unavailable("fleet-certificates", f"{path} cannot be read") from None


def _ends_soon(path: Path) -> bool:
    from cryptography import x509

    with suppress(OSError, ValueError):
        return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc < datetime.now(UTC) + timedelta(days=RENEWED_DAYS)
    return True


def _make_authority(at: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    replace(at / AUTHORITY_KEY, _pem(key), mode=_MODE)  # first: a folder with the certificate has its key
    replace(at / AUTHORITY, _signed(key, key, "every-load fleet authority", AUTHORITY_DAYS, is_authority=True), mode=_MODE)


def _make_member(at: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    authority = serialization.load_pem_private_key((at / AUTHORITY_KEY).read_bytes(), None)
    key = ec.generate_private_key(ec.SECP256R1())
    replace(at / MEMBER_KEY, _pem(key), mode=_MODE)
    replace(at / MEMBER, _signed(key, authority, "every-load fleet member", MEMBER_DAYS, is_authority=False), mode=_MODE)


def _signed(key: EllipticCurvePrivateKey, by: EllipticCurvePrivateKey, name: str, days: int, *, is_authority: bool) -> bytes:
    """A certificate (RFC 5280). Its beginning lies a day back, for the clocks of a fleet differ."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    names = [_named(text) for text in (name, "every-load fleet authority")]
    now = datetime.now(UTC)
    made: x509.Certificate = (
        x509.CertificateBuilder().subject_name(names[0]).issuer_name(names[1]).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True)
        .sign(by, hashes.SHA256()))
    return made.public_bytes(serialization.Encoding.PEM)


def _named(text: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
