"""Tests of shoal_lab.experiment.reading."""
