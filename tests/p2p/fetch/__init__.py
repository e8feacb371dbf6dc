"""Tests of p2p.fetch."""
