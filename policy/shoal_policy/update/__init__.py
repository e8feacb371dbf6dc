"""Groups become a GRPO update: rows, log-probabilities, loss and step."""
