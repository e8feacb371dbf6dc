"""Tests of shoal_policy.update."""
