"""Tests of policy.warmstart."""
