"""Tests of shoal_lab.experiment.run."""
