"""Chooses the groups that a round trains on, and computes advantages. No tensors."""
