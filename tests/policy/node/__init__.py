"""Tests of policy.node."""
