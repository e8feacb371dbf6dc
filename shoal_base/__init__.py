"""Basics of every other package: whole files, bounds, text that can be shown."""
