"""Tests of shoal.experiment.hetero."""
