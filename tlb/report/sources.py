"""Which source measured a page's rows: a line for each file of a kernel, which the directive
`listing` puts under its listings (book/_ext/tlb_listing.py)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import pandas as pd

from tlb.lab import build
from tlb.prose import listed


class MeasuredBy(NamedTuple):
    """The lines as an output of a notebook, which shows nothing by itself."""

    lines: dict[str, str]

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None
    ) -> tuple[dict[str, str], dict[str, Any]]:
        return {"text/plain": ""}, {"tlb": {"measured_by": self.lines}}


def measured_by(frame: pd.DataFrame) -> dict[str, str]:
    """Return a line for each file that the C kernels of these rows are made of, by its path."""
    if frame.empty:
        return {}
    in_c = frame[frame["engine"] == "c"]
    files: dict[str, dict[str, str]] = {}
    for kernel, found in sorted(digests(in_c).groupby(in_c["kernel"]).unique().items()):
        for path in build.sources(str(kernel), "c"):
            files.setdefault(f"kernels/{path.name}", {})[str(kernel)] = _words(str(kernel), found)
    return {file: f"Measured by {_of_kernels(words)}." for file, words in files.items()}


def digests(frame: pd.DataFrame) -> pd.Series:
    """Return of each row the digest of its kernel's source; of version 1 that of source, flags and
    compiler."""
    return frame["source"].where(frame["source"] != "", frame["kernel_digest"])


def _words(kernel: str, digests: Collection[str]) -> str:
    now = build.source_digest(kernel, "c")
    earlier = [f"`{digest}`" for digest in sorted(digests) if digest != now]
    told = [f"source `{now}`"] if now in digests else []
    if earlier:
        told.append(
            f"{'an earlier source' if len(earlier) == 1 else 'earlier sources'} ({', '.join(earlier)})"
        )
    return listed(told)


def _of_kernels(words: dict[str, str]) -> str:
    return (
        next(iter(words.values()))
        if len(words) == 1
        else listed(f"{told} of `{kernel}`" for kernel, told in words.items())
    )
