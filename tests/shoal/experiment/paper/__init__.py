"""Tests of shoal.experiment.paper."""
