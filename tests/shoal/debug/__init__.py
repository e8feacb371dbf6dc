"""Tests of shoal.debug."""
