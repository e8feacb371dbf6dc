"""Tests of policy.generation."""
