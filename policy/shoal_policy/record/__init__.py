"""The record of a run: progress, metrics, status, and what was set aside. No tensors."""
