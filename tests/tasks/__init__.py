"""Tests of shoal_tasks."""
