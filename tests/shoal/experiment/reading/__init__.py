"""Tests of shoal.experiment.reading."""
