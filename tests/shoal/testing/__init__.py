"""Tests of the doubles."""
