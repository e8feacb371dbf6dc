"""Tests of shoal_policy.record."""
