"""The fleet's certificates: who may read them, who is let in by them, and when they are made anew."""

from __future__ import annotations

import os
import ssl
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

x509 = pytest.importorskip("cryptography.x509", reason="`make fleet` adds it")

from experiments.fleet import certificates  # noqa: E402
from experiments.fleet.certificates import AUTHORITY, AUTHORITY_KEY, MEMBER, MEMBER_KEY, Pass, from_pipe, member, read_pass  # noqa: E402
from experiments.words.reasons import Unavailable  # noqa: E402


def shakes_hands(server: Pass, client: Pass, folder: Path) -> bool:
    """Whether both ends let each other in, as Dask sets them up: each shows its certificate and checks the other's by its own authority."""
    ends = []
    for number, (shown, purpose) in enumerate(((server, ssl.Purpose.CLIENT_AUTH), (client, ssl.Purpose.SERVER_AUTH))):
        for name, text in zip(("authority", "certificate", "key"), shown, strict=True):
            (folder / f"{number}-{name}").write_text(text)
        context = ssl.create_default_context(purpose, cafile=str(folder / f"{number}-authority"))
        context.load_cert_chain(folder / f"{number}-certificate", folder / f"{number}-key")
        context.verify_mode, context.check_hostname = (ssl.CERT_REQUIRED, False) if number == 0 else (context.verify_mode, False)
        ends.append((context, ssl.MemoryBIO(), ssl.MemoryBIO()))
    (serves, server_in, server_out), (asks, client_in, client_out) = ends
    objects = [asks.wrap_bio(client_in, client_out), serves.wrap_bio(server_in, server_out, server_side=True)]
    done: set[int] = set()
    for _ in range(10):
        for number, end in enumerate(objects):
            try:
                end.do_handshake()
                done.add(number)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                return False
            source, sink = ((client_out, server_in), (server_out, client_in))[number]
            sink.write(source.read())
    try:  # in TLS 1.3 a client learns only then that it was turned away
        objects[0].write(b"x")
        server_in.write(client_out.read())
        return objects[1].read(1) == b"x" and done == {0, 1}
    except ssl.SSLError:
        return False


def test_they_are_made_on_first_use_for_this_user_alone_and_stay(tmp_path):
    folder = tmp_path / "state" / "fleet"
    old = os.umask(0)
    try:
        first = member(folder)
    finally:
        os.umask(old)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600} and len(list(folder.iterdir())) == 4
    assert member(folder) == first == read_pass(first.text)


def test_members_of_one_authority_let_each_other_in_and_nobody_else(tmp_path):
    ours, theirs = member(tmp_path / "ours"), member(tmp_path / "theirs")
    assert shakes_hands(ours, ours, tmp_path)
    assert not shakes_hands(ours, theirs, tmp_path) and not shakes_hands(theirs, ours, tmp_path)
    assert not shakes_hands(ours, theirs._replace(authority=ours.authority), tmp_path)  # who trusts us, but is none of us


def test_a_member_is_no_authority(tmp_path):
    ours = member(tmp_path / "ours")
    made = x509.load_pem_x509_certificate(ours.certificate.encode())
    assert made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    made.verify_directly_issued_by(x509.load_pem_x509_certificate(ours.authority.encode()))


def test_one_that_ends_soon_is_made_anew_by_the_same_authority_where_its_key_is(tmp_path, monkeypatch):
    monkeypatch.setattr(certificates, "MEMBER_DAYS", certificates.RENEWED_DAYS - 1)
    old = member(tmp_path / "fleet")
    monkeypatch.undo()
    new = member(tmp_path / "fleet")
    assert new.authority == old.authority and new.certificate != old.certificate and shakes_hands(old, new, tmp_path)
    ends = x509.load_pem_x509_certificate(new.certificate.encode()).not_valid_after_utc
    assert ends > datetime.now(UTC) + timedelta(days=certificates.RENEWED_DAYS)
    (tmp_path / "fleet" / AUTHORITY_KEY).unlink()  # as on a worker's computer
    assert member(tmp_path / "fleet") == new


def test_first_uses_at_once_make_one_authority(tmp_path):
    begin = threading.Barrier(4)

    def use(_: int) -> Pass:
        begin.wait()
        return member(tmp_path / "fleet")

    with ThreadPoolExecutor(4) as pool:
        assert len({*pool.map(use, range(4))}) == 1


SPOILT = {"open to others": lambda folder: folder.chmod(0o755), "no text": lambda folder: (folder / MEMBER).write_bytes(b"\xff"),
          "a part": lambda folder: (folder / MEMBER).unlink()}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_a_folder_that_will_not_do_is_a_reason(tmp_path, spoil: Callable[[Path], object]):
    member(tmp_path / "fleet")
    (tmp_path / "fleet" / AUTHORITY_KEY).unlink()  # as on a worker's computer, which makes none
    spoil(tmp_path / "fleet")
    with pytest.raises(Unavailable) as why:
        member(tmp_path / "fleet")
    assert why.value.code == "fleet-certificates"


@pytest.mark.parametrize(("read_only", "key_mode", "will_do"), [(True, 0o400, True), (True, 0o444, False), (False, 0o400, False)])
def test_a_secret_is_mounted_open_and_read_only_with_a_key_that_is_closed(tmp_path, monkeypatch, read_only: bool, key_mode: int,
                                                                          will_do: bool):
    made = member(tmp_path / "made")
    mounted = tmp_path / "mounted"
    (mounted / "..data").mkdir(parents=True)
    for name, text in zip((AUTHORITY, MEMBER, MEMBER_KEY), made, strict=True):
        (mounted / "..data" / name).write_text(text)
        (mounted / "..data" / name).chmod(key_mode)
        (mounted / name).symlink_to(f"..data/{name}")
    mounted.chmod(0o1777)
    flags = type("", (), {"f_flag": os.ST_RDONLY if read_only else 0})
    monkeypatch.setattr(os, "fstatvfs", lambda descriptor: flags)
    if will_do:
        assert member(mounted) == made
        (mounted / MEMBER_KEY).unlink()  # a part
    with pytest.raises(Unavailable) as why:
        member(mounted)
    assert why.value.code == "fleet-certificates"


def test_a_pass_is_read_from_a_pipe_that_stays_open(tmp_path):
    shown = member(tmp_path / "fleet")
    lines = iter([*shown.text.splitlines(keepends=True), "more\n"])
    assert from_pipe(lines) == shown and [*lines] == ["more\n"]
    with pytest.raises(Unavailable):
        from_pipe(shown.text.splitlines(keepends=True)[:4])


@pytest.mark.parametrize("text", ["", "x", "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n", "-----\n" * 6])
def test_what_is_no_pass_is_a_reason(text: str):
    with pytest.raises(Unavailable) as why:
        read_pass(text)
    assert why.value.code == "fleet-certificates"


@pytest.mark.parametrize(("state", "expected"), [("/var/lib/x", "/var/lib/x/every-load/fleet"), ("", "~/.local/state/every-load/fleet"),
                                                 ("relative", "~/.local/state/every-load/fleet")])
def test_they_lie_where_the_xdg_specification_puts_state(monkeypatch, state: str, expected: str):
    monkeypatch.setenv("XDG_STATE_HOME", state)
    assert certificates.folder() == Path(expected).expanduser()
