"""The contract between peers: messages, bounds, signatures. No I/O, clock or configuration."""
