"""Tests of shoal_base."""
