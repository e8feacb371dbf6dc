"""Tests of shoal_lab.experiment.setup."""
