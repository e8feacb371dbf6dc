"""The trainer's end of the node's socket. No tensors."""
