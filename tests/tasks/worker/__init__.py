"""Tests of shoal_tasks.worker."""
