"""These tests assert no wall-clock: a slow machine must not fail a generated example."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
