"""Which groups a round trains on, and what each completion is worth. No tensors."""
