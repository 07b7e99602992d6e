"""What tlb_pressure's article says of the cliff, as predicates on the chapter's Analysis."""
