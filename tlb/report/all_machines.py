"""An experiment on every published machine at once, for the pages that re-run the sources."""

from __future__ import annotations

import pandas as pd

from tlb.report.chapter import Chapter
from tlb.report.quantities import QUANTITIES
from tlb.system.reasons import Unavailable, if_available

MACHINE = "machine"  # the column that names a row's machine
THIS_COMPUTER = "this computer"


def on_all_machines(page: Chapter) -> dict[str, Chapter]:
    """Return a page's Chapter about each published machine, by the name of the machine ("Zen 4, EPYC
    guest"): first the reference, and last this computer if the page is about it."""
    first = page.data.reference()
    names = sorted(page.data.machines(), key=lambda name: (name != first, name))
    found = {about.shown_name: about for about in map(page.on, names)}
    return found | {THIS_COMPUTER: page} if page.is_this else found


def rows_on_all_machines(page: Chapter, experiment: str, engine: str = "") -> pd.DataFrame:
    """Return the rows of an experiment of all machines that have some, with the column `machine`.

    engine: of kernels with rows of several engines; by default the page's. Nothing is measured. Raises Unavailable("no-data") if no machine has rows.
    """
    frames = []
    for name, about in on_all_machines(page).items():
        try:
            frames.append(about.kept(experiment, engine).assign(**{MACHINE: name}))
        except Unavailable as why:
            if why.code != "no-data":
                raise
    if not frames:
        raise Unavailable("no-data", experiment)
    return pd.concat(frames, ignore_index=True)


def estimates_on_all_machines(page: Chapter, experiment: str) -> pd.DataFrame:
    """Return what a chapter's kept quantities estimate, a row each by its name, and a column for each
    machine; NaN for what a machine lacks."""
    found = {}
    for name, about in on_all_machines(page).items():
        kept = if_available(about.store.read_document, about.machine, QUANTITIES) or {}
        found[name] = {key: one.get("value") for key, one in kept.get(experiment, {}).items()}
    return pd.DataFrame(found, dtype=float)
