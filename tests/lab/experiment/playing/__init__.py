"""Tests of shoal_lab.experiment.playing."""
