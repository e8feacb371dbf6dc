"""Tests of p2p.gossip."""
