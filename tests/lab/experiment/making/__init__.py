"""Tests of shoal_lab.experiment.making."""
