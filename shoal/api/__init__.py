"""The Python API: groups published, drawn, verified and acknowledged through a node's socket."""
