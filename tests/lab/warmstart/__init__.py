"""Tests of shoal_lab.warmstart."""
