"""Runs a completion's Python against unit tests: forms of tests, processes, values between them."""
