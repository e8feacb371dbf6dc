"""Shared test helpers: nodes, peers, swarms, and their attackers."""
