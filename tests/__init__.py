"""The tests: a mirror of the rooms, and of what crosses them."""
