"""Nodes that differ: models, tasks, speed and presence."""
