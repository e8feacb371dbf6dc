"""Runs a completion's Python against unit tests: formats, processes, values between them."""
