"""Tests of policy.record."""
