"""Tests of p2p."""
