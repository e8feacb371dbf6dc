"""Tests of p2p.rollouts."""
