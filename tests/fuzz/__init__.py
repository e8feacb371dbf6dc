"""Damaged bytes by the million, for every parser of peers' input."""
