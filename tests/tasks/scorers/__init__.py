"""Tests of shoal_tasks.scorers."""
