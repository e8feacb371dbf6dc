"""Tests of policy.choice."""
