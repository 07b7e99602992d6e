"""Elijah: strides, re-run beside the published numbers."""
