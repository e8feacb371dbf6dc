"""`shoal export`: a node's model, or the rollouts that it has seen, for other programs."""
