"""Generates completions of questions, in this process or through a server."""
