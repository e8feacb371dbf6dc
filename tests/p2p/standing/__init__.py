"""Tests of p2p.standing."""
