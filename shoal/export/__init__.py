"""`shoal export`: the rollouts that a node has seen, as a data set."""
