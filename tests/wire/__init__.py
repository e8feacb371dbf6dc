"""Tests of shoal_wire and shoal_ipc."""
