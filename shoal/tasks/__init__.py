"""`shoal tasks`: which families there are, how a new one is written, and what a model earns."""
