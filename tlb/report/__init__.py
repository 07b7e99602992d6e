"""How rows are shown and published. What a notebook needs of it: `begin`, and what it writes its
page with."""

import sys

# jsonschema, which Altair and nbformat import, checks internationalised addresses if it can, and
# compiles their grammar for 1.5 s in every process. No chart and no notebook has one, and without
# the checker it does without the check.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

from tlb.report.chapter import begin as begin  # noqa: E402
from tlb.report.page import figure as figure  # noqa: E402
from tlb.report.page import judge as judge  # noqa: E402
from tlb.report.page import say as say  # noqa: E402
from tlb.report.page import table as table  # noqa: E402
