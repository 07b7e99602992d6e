"""`tlb bundle`, `tlb check-bundle` and `tlb add-bundle`: one machine as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
import yaml

from experiments.cli import shown
from experiments.lab.store import Store, data_root
from experiments.machine import doctor
from experiments.machine import host as hosts
from experiments.system.files import ROOT
from experiments.words.prose import count, listed
from experiments.words.units import format_size

File = Annotated[Path, typer.Argument(metavar="FILE", help="A file that `tlb bundle` wrote.")]


def bundle(
    machine: Annotated[str, typer.Argument(help="this, or a machine in data/own/ or data/.")] = "this",
    output: Annotated[Path | None, typer.Option(help="Where to; default MACHINE.tlb.zip.")] = None,
    allow: Annotated[list[str] | None, typer.Option(metavar="WORD", help="A word of the description that may leave.")] = None,
) -> None:
    """Pack all that was measured of a machine into one file to contribute it; words that may name somebody stay here."""
    from experiments.fleet import bundle as bundles

    data, this = Store(data_root()), hosts.machine_id(hosts.inspect()) if machine == "this" else ""
    store = data.own if this or machine in data.own.machines() else data
    name = store.resolve(machine, this)
    path = output or Path(f"{name}{bundles.SUFFIX}")
    packed = bundles.write(store, name, path, allow or ())
    kernels = [member.removesuffix(".jsonl") for member in sorted(packed.files) if member.endswith(".jsonl")]
    print(f"{path}: {count(packed.rows)} rows of {listed(kernels)}, in the state{'s' * (len(packed.states) > 1)} {listed(packed.states)}; "
          f"{format_size(path.stat().st_size)}, and {format_size(sum(map(len, packed.files.values())))} unpacked.")
    if packed.left_out:
        print(f"Left out: {listed(packed.left_out)}.")
    url = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["repository"]["url"]
    print(f"`tlb check-bundle {path}` shows what is in it; then " + (
        f"attach it to a new issue or pull request at {url}." if url else "send it to whoever keeps the copy of the book that it is for."))


def check_bundle(file: File) -> None:
    """Whether a bundle is one that may be added, and what a reviewer wants to know of it; exit 1 with the reason if not."""
    from experiments.fleet import bundle as bundles
    from experiments.fleet import contributed

    data, accepted = Store(data_root()), bundles.checked(file)
    shown.parts([f"{accepted.machine}, as it describes itself:", pd.DataFrame(doctor.describe(accepted.host), columns=["", "it says"]),
                 pd.DataFrame(contributed.table(data, accepted)), *contributed.remarks(accepted)])
    contributed.review(data, accepted)
    rows = sum(content.count(b"\n") for name, content in accepted.files.items() if name.endswith(".jsonl"))
    print(f"Accepted: {count(rows)} rows, each with its digest, its key and its seed, no two of them of one process, and none that its "
          f"kernel could not have printed. `tlb add-bundle {file}` puts them into data/{accepted.machine}/.")


def add_bundle(file: File) -> None:
    """Put an accepted bundle into data/: the one way in. Cards, profiles and verdicts are made anew; git then shows what changed."""
    from experiments.fleet import bundle as bundles
    from experiments.fleet import contributed
    from experiments.front import judged, profile

    added = contributed.add(Store(data_root()), bundles.checked(file))
    known = f"; {count(added.known)} were there and stay as they are" if added.known else ""
    print(f"{added.folder}: {count(added.rows)} new rows{known}. Their claims are judged now, which takes about a minute.", flush=True)
    judged.refresh()
    profile.refresh()
