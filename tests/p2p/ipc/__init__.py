"""Tests of p2p.ipc."""
