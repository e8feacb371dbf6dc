"""Tests of p2p.buffer."""
