"""Tests of what is shown of a node."""
