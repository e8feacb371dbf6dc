"""Measurements of shoal's own promises. Speed is measured here, never asserted in tests."""
