"""The pages about several chapters or machines: the first page, the scorecard, comparisons, and the
campaign that measures the book."""

from tlb.report import discovery

CHAPTERS = discovery.chapters()
