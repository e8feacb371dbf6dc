"""The node process: Trio and py-libp2p, never torch."""
