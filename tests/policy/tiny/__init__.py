"""Tests of policy.tiny."""
