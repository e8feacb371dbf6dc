"""Tests of tasks.scorers."""
