"""Whole swarms as real processes."""
