"""The record of a run: progress, metrics, status and earlier runs. No tensors."""
