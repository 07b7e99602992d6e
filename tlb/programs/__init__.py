"""Other people's programs: what a lever changes in them, without changing them."""
