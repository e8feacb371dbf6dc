"""`shoal watch`: one node in a terminal, live."""
