"""How rows are shown and published. What a notebook needs of it: `begin`, and what it writes its
page with."""

from tlb.report.chapter import begin as begin
from tlb.report.page import describe as describe
from tlb.report.page import figure as figure
from tlb.report.page import judge as judge
from tlb.report.page import say as say
from tlb.report.page import table as table
