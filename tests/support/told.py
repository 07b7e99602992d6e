"""A page's tables as a test reads them."""

import pandas as pd

from tlb.report.render import Html


def read(table: Html) -> pd.DataFrame:
    """What a reader sees, as text."""
    head, *lines = (line.split("\t") for line in table.text.splitlines())
    return pd.DataFrame(lines, columns=head)
