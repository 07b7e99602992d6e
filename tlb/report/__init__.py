"""How rows are shown and published. What a notebook needs of it: `begin`, and what it writes its
page with."""

from tlb.report.all_machines import judged_on_all_machines as judged_on_all_machines
from tlb.report.all_machines import summary_of_article as summary_of_article
from tlb.report.article import judge as judge
from tlb.report.article import on_this_computer as on_this_computer
from tlb.report.article import quantities_of as quantities_of
from tlb.report.article import show_chart as show_chart
from tlb.report.article import show_figure as show_figure
from tlb.report.article import show_source as show_source
from tlb.report.article import show_table as show_table
from tlb.report.chapter import begin as begin
from tlb.report.page import mark_ratios as mark_ratios
from tlb.report.page import say as say
from tlb.report.page import show_facts as show_facts
