"""Tests of policy.checkpoint.saving.saving."""
