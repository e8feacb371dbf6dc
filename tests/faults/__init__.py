"""Killed, stopped and starved processes, and broken links."""
