"""Tests of shoal_lab.experiment.paper."""
