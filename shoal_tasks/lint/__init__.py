"""Lint: tests whether a task rewards correct answers; a quick part runs at every start."""
