"""Shipilëv: large pages in Java, re-run beside the published numbers."""
