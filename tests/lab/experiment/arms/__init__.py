"""Tests of shoal_lab.experiment.arms."""
