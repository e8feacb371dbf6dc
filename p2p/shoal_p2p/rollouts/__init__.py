"""The node's groups: the outbox of its own, the pool of everybody's, and their account."""
