"""Tests of policy.model.loading.loading."""
