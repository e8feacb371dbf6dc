"""Tests of policy.generation.local.local."""
