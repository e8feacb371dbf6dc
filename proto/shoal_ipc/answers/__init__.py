"""A node's answers to readers: one dataclass a view, shared by the node and every reader."""
