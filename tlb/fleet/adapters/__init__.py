"""Other people's harnesses around `tlb run`: each file is theirs to load, stands alone, and reads
what `tlb run --json` prints."""
