"""Processes killed, stopped and starved, and links that break."""
