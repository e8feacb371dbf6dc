"""Tests of policy.model."""
