"""Tests of policy.round."""
