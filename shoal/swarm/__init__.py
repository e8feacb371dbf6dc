"""`shoal swarm`: a bootstrap and nodes on this machine."""
