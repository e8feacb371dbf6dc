"""Tests of shoal_tasks.sandbox."""
