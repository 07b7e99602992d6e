"""Files that survive: appends and replacements that are whole or not there, locks that nothing can
leave behind.

A lock is a flock, which the kernel drops with the last descriptor of it: a kill -9 leaves no stale
state.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from tlb.system.reasons import Unavailable

try:
    import fcntl
except ImportError:  # Windows reads committed data; only Linux measures
    fcntl = None  # type: ignore[assignment]

# What lies beside tlb/ in a clone, as a wheel has it: the kernels' sources.
SHARE = Path(__file__).resolve().parents[1] / "share"
IS_REPOSITORY_CLONE = not SHARE.is_dir()
ROOT = (
    Path(__file__).resolve().parents[2] if IS_REPOSITORY_CLONE else SHARE
)  # of book/, kernels/, data/
PREBUILT_ARCHIVE = SHARE / "prebuilt" / f"{platform.machine()}.tar.xz"  # programs for this computer

# Fixed, and not tempfile.gettempdir(): TMPDIR may differ from user to user, and then so would the
# lock.
MEASURING_LOCK = Path("/tmp/tlb-measuring.lock")
# Of changed settings (tlb/machine/changed_settings.py), under the root.
SETTINGS_JOURNAL = Path("run/every-load-settings.json")
_POLL_S = 0.1  # between two looks at a lock that another process holds
_SHOWN_CHARS = 100  # of that process's command line

# No file here may be reached through a symbolic link, and no child inherits one unasked.
SAFE_OPEN_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)

_REFUSED = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EFBIG}
_REFUSED |= {errno.EROFS, errno.EACCES, errno.EPERM}


def default_data_root() -> Path:
    """Return the folder of rows: a clone's data, else the user's."""
    return ROOT / "data" if IS_REPOSITORY_CLONE else _of_user("XDG_DATA_HOME", ".local/share")


def build_root() -> Path:
    """Return the folder of what can be made again: a clone's _build, else one that nobody but this
    user may write. Raises Unavailable("disk-refused")."""
    if IS_REPOSITORY_CLONE:
        return ROOT / "_build"
    folder = _of_user("XDG_CACHE_HOME", ".cache")
    with disk_errors_as_unavailable(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Unavailable(
            "disk-refused",
            f"another user may write into {folder}",
            "Remove that folder or its write permissions, or name a folder of your own in TLB_BUILD.",
        )
    return folder


def _of_user(variable: str, default: str) -> Path:
    home = os.environ.get("HOME") or "/"  # of a container's user there may be none
    return Path(os.environ.get(variable) or Path(home, default)) / "tlb"


@contextmanager
def disk_errors_as_unavailable(path: Path) -> Iterator[None]:
    """Turn a full, read-only or forbidden disk into Unavailable("disk-refused")."""
    try:
        yield
    except OSError as e:
        if e.errno in _REFUSED:
            raise Unavailable("disk-refused", f"{path}: {e.strerror}") from e
        raise


def lock_file(fd: int, wait: bool = True) -> None:
    """Takes the exclusive flock; without `wait`, BlockingIOError where another holds it."""
    if fcntl is None:
        raise Unavailable("not-linux")
    fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def is_at(fd: int, path: Path) -> bool:
    """Whether `path` still names the file of `fd`. After a wait, a lock may be that of a replaced
    file."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    return False


def append_whole(fd: int, data: bytes) -> None:
    """Appends all of `data` and syncs it, or leaves the file as it was. One write, if the disk
    takes it."""
    start = os.fstat(fd).st_size
    rest = memoryview(data)
    try:
        while rest:
            written = os.write(fd, rest)
            if not written:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            rest = rest[written:]
        os.fsync(fd)
    except OSError:
        with suppress(OSError):  # what stays then is a torn line, which the next writer cuts off
            os.ftruncate(fd, start)
        raise


def read_small_file(path: Path, most_bytes: int) -> bytes:
    """Return a small file's content. Raises OSError, also for what is larger, and for a pipe or a
    device, which may have no end."""
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    if status.st_size > most_bytes:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return path.read_bytes()


def replace_file(
    path: Path, data: bytes, like: os.stat_result | None = None, mode: int = 0o644
) -> None:
    """Puts `data` in the place of `path` in one step, of this mode from its first moment, or with
    owner and mode of `like`. Under a lock only."""
    # one name, so that the next writer finds what a kill -9 left
    new = path.with_name(f".{path.name}.tmp")
    new.unlink(missing_ok=True)
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFE_OPEN_FLAGS, mode)
    try:
        if like:
            with suppress(PermissionError):  # only root gives files away; others keep their own
                os.fchown(fd, like.st_uid, like.st_gid)
            os.fchmod(fd, stat.S_IMODE(like.st_mode))
        append_whole(fd, data)
        os.replace(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes new names in `folder` survive a power cut."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def replaced_folder(target: Path) -> Iterator[Path]:
    """Yield where to make a folder, which then takes the place of `target`, whole or not at all.

    Where none is made, and after an exception, `target` stays as it is. Of several who do so in one
    parent folder, one after the other does. Raises Unavailable: disk-refused.
    """
    parent, aside = target.parent, target.with_name(f".{target.name}.old")
    with disk_errors_as_unavailable(target):
        parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(parent, os.O_RDONLY | SAFE_OPEN_FLAGS)
        try:
            lock_file(fd)
            recover_folder(target, aside)
            for abandoned in parent.glob(f".{target.name}.new-*"):  # by a process that was killed
                shutil.rmtree(abandoned, ignore_errors=True)
            with TemporaryDirectory(dir=parent, prefix=f".{target.name}.new-") as folder:
                made = Path(folder) / target.name
                yield made
                if made.exists():
                    put_folder(made, target, aside)
        finally:
            os.close(fd)


def put_folder(new: Path, target: Path, aside: Path) -> None:
    """Puts a folder in the place of another, which goes, or where there is none yet: after a kill
    either is there.

    Linux exchanges two names in one step (renameat2(2), since 3.15); a file system that cannot
    leaves the old one `aside` for the moment between two renames, and `recover_folder` puts it back.
    """
    if not target.exists():
        new.rename(target)
    elif _exchanged(new, target):
        shutil.rmtree(new)
    else:
        target.rename(aside)
        new.rename(target)
        shutil.rmtree(aside)
    sync_folder(target.parent)


def recover_folder(target: Path, aside: Path) -> None:
    """Ends what a kill left of `put_folder`: the old folder comes back where no new one is, and
    goes where one is."""
    if aside.exists() and not target.exists():
        aside.rename(target)
    shutil.rmtree(aside, ignore_errors=True)


def _exchanged(one: Path, other: Path) -> bool:
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2  # glibc 2.28, musl 1.2.6
    except (AttributeError, OSError, TypeError):
        return False
    return rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0


_HERE, _EXCHANGE = -100, 2  # AT_FDCWD of <fcntl.h>, RENAME_EXCHANGE of <linux/fs.h>


@contextmanager
def measuring_lock(wait: bool | float = False, path: Path = MEASURING_LOCK) -> Iterator[int]:
    """Holds the lock that makes measurements of a host take turns, whoever runs them; yields its
    descriptor.

    wait: for the lock, at most so many seconds, or (True) until it is free; then
    Unavailable("measuring-already"). Pass the descriptor to a kernel process (subprocess's
    pass_fds), and the orphan of a killed runner keeps the lock until it ends too.
    """
    end_s = time.monotonic() + wait
    while True:
        fd = _open_lock(path)
        try:
            try:
                lock_file(fd, wait is True)
            except BlockingIOError:
                if time.monotonic() >= end_s:
                    raise Unavailable("measuring-already", _holder(fd)) from None
                time.sleep(_POLL_S)
                continue
            if is_at(fd, path):
                yield fd
                return
        finally:
            os.close(fd)


def _open_lock(path: Path) -> int:
    """Opens for reading, which is all that flock needs; creates the file for all where there is
    none.

    Not O_CREAT at once: fs.protected_regular refuses it for another user's file in a sticky folder.
    The umask is lifted for the open: a chmod after it would leave, to a kill -9 between the two, a
    file that shuts others out.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | SAFE_OPEN_FLAGS
    while True:
        try:
            try:
                fd = os.open(path, flags)
            except FileNotFoundError:
                umask = os.umask(0)
                try:
                    fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
                finally:
                    os.umask(umask)
        except FileExistsError:  # another created it in between
            continue
        except OSError as e:
            raise _unknown(path, e.strerror or str(e)) from e
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
        raise _unknown(path, "not a regular file")


def _unknown(path: Path, why: str) -> Unavailable:
    return Unavailable(
        "measuring-already", f"for all one can know: {path} is no lock ({why}), remove it"
    )


def _holder(fd: int) -> str:
    """`process 123, make book` from the kernel's own list of locks; "" where that says nothing of
    the holder."""
    seen = os.fstat(fd)
    file = f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}:{seen.st_ino}"
    with suppress(OSError):
        for line in Path("/proc/locks").read_text("ascii", "replace").splitlines():
            # "1: FLOCK ADVISORY WRITE 123 fe:00:4711 0 EOF"; a waiter has "->" in second place, and
            # a holder in another process namespace has the id 0.
            match line.split():
                case [_, "FLOCK", _, _, pid, at, *_] if at == file and pid.isdigit() and pid != "0":
                    words = Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace").split("\0")
                    return f"process {pid}, {' '.join(words).strip()[:_SHOWN_CHARS]}"
    return ""
