"""Where a program's page walks come from: which lines of code, which allocations, and which of
these are worth huge pages."""
