"""Scorers that never evaluate the text that they score."""
