"""The judging peer: asks nodes, scores their answers, keeps signed records."""
