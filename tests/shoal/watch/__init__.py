"""Tests of shoal.watch."""
