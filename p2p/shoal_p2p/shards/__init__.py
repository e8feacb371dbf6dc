"""Chooses the topics this node listens to, and the peers it has in each."""
