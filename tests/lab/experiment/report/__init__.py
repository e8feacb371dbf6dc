"""Tests of shoal_lab.experiment.report."""
