"""What a node answers to those who look: one dataclass a view, for the node and every reader."""
