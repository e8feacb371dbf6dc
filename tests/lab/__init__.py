"""Tests of shoal_lab."""
