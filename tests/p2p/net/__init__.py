"""Tests of p2p.net."""
