"""Programs that articles printed, as the same operations under this book's contract: python -m
kernels.published.page_gather."""
