"""Hostile schedules out of everything that can be said, against whole nodes in virtual time."""
