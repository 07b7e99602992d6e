"""What tests share; no test file imports another."""
