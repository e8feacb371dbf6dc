"""Tests of policy.update."""
