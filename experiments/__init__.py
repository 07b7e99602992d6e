"""The book's chapters, a folder each: grid, analysis, figures, claims. `overview` has the pages
about several of them."""

import tlb as tlb  # first: it keeps Altair from a slow import (tlb/__init__.py)
