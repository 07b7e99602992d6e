"""Which source measured a page's rows, for the listings of kernels (book/_ext/tlb_listing.py)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tlb.measure import build
from tlb.system.prose import listed


@dataclass(frozen=True)
class MeasuredBy:
    """A sentence for each kernel file, as an output of a notebook that shows nothing by itself. No
    tuple: IPython prints those in its own way."""

    lines: dict[str, str]

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None
    ) -> tuple[dict[str, str], dict[str, Any]]:
        return {"text/plain": ""}, {"tlb": {"measured_by": self.lines}}


def measured_by(frame: pd.DataFrame) -> dict[str, str]:
    """Return a sentence for each file of the C kernels of these rows, by the file's path."""
    if frame.empty:
        return {}
    in_c = frame[frame["engine"] == "c"]
    files: dict[str, dict[str, str]] = {}
    for kernel, found in sorted(in_c["source"].groupby(in_c["kernel"]).unique().items()):
        for path in build.source_files(str(kernel), "c"):
            files.setdefault(f"kernels/{path.name}", {})[str(kernel)] = _words(str(kernel), found)
    sentences = {}
    for file, words in files.items():
        by_kernel = [f"{text} of `{kernel}`" for kernel, text in words.items()]
        text = listed(by_kernel) if len(words) > 1 else next(iter(words.values()))
        sentences[file] = f"Measured with {text}."
    return sentences


def _words(kernel: str, digests: Collection[str]) -> str:
    now = build.source_digest(kernel, "c")
    earlier = [f"`{digest}`" for digest in sorted(digests) if digest != now]
    words = [f"version `{now}`"] if now in digests else []
    if earlier:
        version = "an earlier version" if len(earlier) == 1 else "earlier versions"
        words.append(f"{version} ({', '.join(earlier)})")
    return listed(words)
