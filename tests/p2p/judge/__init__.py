"""Tests of p2p.judge."""
