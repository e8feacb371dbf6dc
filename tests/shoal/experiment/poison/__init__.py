"""Tests of shoal.experiment.poison."""
