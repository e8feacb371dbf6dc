"""Tests of shoal_ipc."""
