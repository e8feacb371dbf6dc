"""Swarms with an implementation that is not this one."""
