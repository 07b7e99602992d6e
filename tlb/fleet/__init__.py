"""Many machines: a campaign on all of them, and the file that one sends and a reviewer accepts."""
