"""Tests of shoal_policy.node."""
