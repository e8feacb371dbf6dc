"""Swarms with another implementation of the protocol."""
