"""Which points the chapter about getting pages asks for."""

import pytest
from support.page_sizes import keeping_pages

from tlb.system.page_sizes import PAGE_KINDS


@pytest.mark.parametrize(("per_octave", "skipped"), [(4, ()), (2, ("32k", "256k", "1m"))])
def test_each_rung_is_chased_over_one_working_set(per_octave, skipped):
    chase = [p for p in keeping_pages(2**30, 4, per_octave) if p.kernel == "page_chase"]
    rungs = [point.pages for point in chase if point.layout == "spread"]
    assert rungs == [pages for pages in PAGE_KINDS if pages not in ("2m", "1g", *skipped)]
    assert len({point.lines for point in chase}) == 1
