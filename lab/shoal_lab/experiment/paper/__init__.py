"""The paper's comparison: its arms, and their learning rates tuned."""
