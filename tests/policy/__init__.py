"""Tests of shoal_policy."""
