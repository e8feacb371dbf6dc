"""Turns groups into one GRPO update: rows, log-probabilities, loss, optimiser step."""
