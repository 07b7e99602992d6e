"""The instrument, in rooms. Each imports only those above it, no room names a chapter of the book,
and `make lint` holds both.

system      reasons, units and prose; talking to Linux safely: files, processes, /proc, smaps
machine     what this computer is and which state it is in
measure     a point becomes a row in data/: kernels, plans, perf, the store, grids, campaigns
stats       what rows say: pure functions of frames
report      how rows are shown: quantities, charts, verdicts, what a notebook writes its page with,
            the site; `notebooks` finds the chapters
programs    other people's programs: what a lever changes in them
fleet       many computers: bundles, and a campaign on all of them
cli         the command `tlb`
"""

import sys

# Altair and nbformat import jsonschema, which compiles the grammar of internationalised addresses for
# 1.5 s in every process if this package is there, and skips that check if not. We draw no such address.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
