"""Tests of `shoal page`."""
