"""Tests of shoal_policy.checkpoint."""
