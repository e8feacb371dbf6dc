"""Tests of shoal_p2p.reputation."""
