"""A peer that breaks the rules, against a whole node."""
