"""Chooses the groups a round trains on, and each completion's advantage. No tensors."""
