"""The blocking side of the node's socket, for the trainer and the command line."""
