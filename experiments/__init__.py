"""The book's chapters, a folder each: grid, analysis, figures, claims. `overview` has the pages
about several of them."""
