"""One message judged: bytes become a batch or a verdict."""
