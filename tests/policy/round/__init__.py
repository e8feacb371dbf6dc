"""Tests of shoal_policy.round."""
