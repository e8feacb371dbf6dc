"""A peer's parts without sockets, threads or processes: a network in memory, on Trio's clock."""
