"""The sentences of the chapter about the cliff."""
