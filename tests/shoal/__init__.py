"""Tests of shoal."""
