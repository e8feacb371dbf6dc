"""The web page of nodes: a separate, read-only process that requests views over sockets."""
