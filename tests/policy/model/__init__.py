"""Tests of shoal_policy.model."""
