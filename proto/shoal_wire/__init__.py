"""The contract between peers, and between a node and its trainer. No I/O, clock or config."""
