"""Dawson: five levels, re-run beside the published numbers."""
