"""Runs jobs: swarms in memory, in worker processes."""
