"""Kernels in numba, for machines without a C compiler, each with the checksums of its C file.

What numba compiled is kept between processes, in the build folder under a digest of all modules here. By itself numba goes by the one
file that a function stands in, and would run what was inlined from another before that one changed.
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
    """Where compilations go; where nothing can be written, a folder for this process alone."""
    digest = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__}".encode())
    for module in sorted(_HERE.glob("*.py")):
        digest.update(hashlib.sha256(module.read_bytes()).digest())
    folder = Path(os.environ.get("TLB_BUILD", _HERE.parents[1] / "_build")) / "kernels" / f"twins-{digest.hexdigest()[:16]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        folder = Path(tempfile.mkdtemp())
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return str(folder)


numba.config.CACHE_DIR = _kept()  # before any module here is imported: a function looks for it when it is defined
