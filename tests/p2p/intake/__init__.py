"""Tests of p2p.intake."""
