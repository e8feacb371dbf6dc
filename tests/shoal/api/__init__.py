"""Tests of shoal.api."""
