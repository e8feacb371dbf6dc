"""Tests of shoal.export."""
