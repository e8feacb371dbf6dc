"""Tests of p2p.shards."""
