"""Tests of policy.checkpoint."""
