"""Tests of p2p.peers."""
