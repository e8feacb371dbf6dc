"""Checkpoints of the trainer, and models exported from them."""
