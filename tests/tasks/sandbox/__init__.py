"""Tests of tasks.sandbox."""
