"""Batches by request: pulls those that gossip did not deliver, and serves them to peers."""
