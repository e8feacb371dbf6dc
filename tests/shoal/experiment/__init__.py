"""Tests of shoal.experiment."""
