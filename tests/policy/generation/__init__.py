"""Tests of shoal_policy.generation."""
