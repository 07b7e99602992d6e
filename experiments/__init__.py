"""The package, in rooms; each imports only from those above it, chapters do not import each other, and `make lint` holds that.

words      what everything says, with no computer in it: units, reasons, page sizes
system     talking to Linux without being hurt: files, processes, /proc, smaps
machine    what this computer is and states of itself
inference  what rows say: pure functions of plain frames
lab        a point becomes a row in data/: the catalogue of kernels, records, perf, the store, grids, campaigns
article    how rows are shown and published: charts, verdicts, what a notebook writes its page with, the site
programs   other people's programs: what a lever changes in them
chapters   one folder a chapter: grid, analysis, figures, claims; the text is in its notebook
front      what speaks of several chapters or machines: the first page, the campaign, comparisons
fleet      many computers: what one sends and a reviewer accepts, a campaign on all, one table of all
bench, cli
"""
