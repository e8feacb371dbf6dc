"""Tests of shoal.experiment.playing."""
