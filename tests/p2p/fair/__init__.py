"""Tests of p2p.fair."""
