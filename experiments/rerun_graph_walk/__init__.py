"""Matthews: a graph walk, re-run beside the published numbers."""
