"""The node's socket: what it answers to trainer and inspectors, and what it asks a judge."""
