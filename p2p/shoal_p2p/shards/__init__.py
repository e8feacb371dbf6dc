"""Which topics this node listens to, and among which peers."""
