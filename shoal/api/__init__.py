"""The Python API: publishes, samples, verifies and acknowledges groups through a node's socket."""
