"""Attackers among the nodes, and what the defences are worth."""
