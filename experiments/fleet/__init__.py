"""Many machines: what one sends, what a reviewer accepts, a courier between them, and one table of all."""
