"""Kernels in numba, for machines without a C compiler, each with the checksums of its C file.

Compiled code is cached in the build folder under a digest of all modules here. numba's own cache
checks only the file of the function, and would run old code that was inlined from another file.
"""

import atexit
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

import llvmlite
import numba

_HERE = Path(__file__).parent


def _kept() -> str:
    """Return the cache folder, or a temporary one if nothing can be written."""
    digest = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__}".encode())
    for module in sorted(_HERE.glob("*.py")):
        digest.update(hashlib.sha256(module.read_bytes()).digest())
    folder = (
        Path(os.environ.get("TLB_BUILD", _HERE.parents[1] / "_build"))
        / "kernels"
        / f"twins-{digest.hexdigest()[:16]}"
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        folder = Path(tempfile.mkdtemp())
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return str(folder)


# read when a function is defined, so before any module here is imported
numba.config.CACHE_DIR = _kept()
