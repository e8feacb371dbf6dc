"""Tests of shoal_policy.choice."""
