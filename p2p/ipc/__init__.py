"""The node's socket, and what it answers to trainer and inspectors."""
