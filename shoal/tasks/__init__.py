"""`shoal tasks`: lists task families, writes new ones, and measures models on them."""
