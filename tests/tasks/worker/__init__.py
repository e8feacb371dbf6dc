"""Tests of tasks.worker."""
