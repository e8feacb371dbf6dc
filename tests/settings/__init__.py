"""Tests of shoal_settings."""
