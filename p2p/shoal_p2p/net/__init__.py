"""Connections: identity, listening, dialling, streams and requests over py-libp2p."""
