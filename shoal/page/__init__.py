"""The web page of nodes: a process of its own that asks over their sockets and only shows."""
