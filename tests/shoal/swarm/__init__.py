"""Tests of shoal.swarm."""
