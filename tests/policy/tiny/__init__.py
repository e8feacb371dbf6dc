"""Tests of shoal_policy.tiny."""
