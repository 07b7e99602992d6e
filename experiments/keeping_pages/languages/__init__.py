"""One array in five languages: what each got, and in words."""
