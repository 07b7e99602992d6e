"""A report as JSON has it."""

from __future__ import annotations

from typing import Any

from tlb.programs.where.report import Report


def document(made: Report) -> dict[str, Any]:
    """Return everything as JSON has it."""
    total, proof = made.found.total, made.proof
    return {
        "command": made.command,
        "geometry": made.geometry and made.geometry._asdict(),
        "not_simulated": made.found.lacking,
        "native_s": made.native_s,
        "instructions": made.found.instructions,
        "total": total._asdict() | {"exposed": total.exposed},
        "walks_by_entries": made.found.curve,
        "walk_ns": made.walk_ns,
        "saved_s": [0.0, made.most_saved_s],
        "verdict": made.verdict(),
        "lines": [
            line._asdict() | counts._asdict() | {"sites": made.found.touches[line]}
            for line, counts in made.lines.items()
        ],
        "saved_ms": [line._asdict() | {"saved": s[:3]} for line, (_, s) in made.times.items()],
        "sites": [vars(site) | {"counts": site.counts._asdict()} for site in made.sites],
        "smallest": proof and proof.smallest,
        "rounds": proof
        and [
            {",".join(key): timed.seconds for key, timed in each.items()} for each in proof.rounds
        ],
    }
