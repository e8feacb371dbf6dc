"""The trainer's side of the node's socket. No tensors."""
