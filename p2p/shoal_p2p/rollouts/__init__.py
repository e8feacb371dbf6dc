"""The node's groups: the outbox of its own, the pool of all, and their statistics."""
