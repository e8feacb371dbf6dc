"""Tests of p2p.store."""
