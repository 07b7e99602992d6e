"""How rows are shown and published. What a notebook needs of it: `begin`, and what it writes its
page with."""

from tlb.report.chapter import begin as begin
from tlb.report.notebook import figure as figure
from tlb.report.notebook import judge as judge
from tlb.report.notebook import table as table
from tlb.report.page import say as say
