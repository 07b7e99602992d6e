"""Padho: what translation costs, re-run beside the published numbers."""
