"""Runs every test of this folder in both worlds."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.conformance.worlds import RealWorld, SimulatedWorld, World, open_world

BOTH = [
    pytest.param(RealWorld, id="real"),
    pytest.param(SimulatedWorld, id="simulated", marks=pytest.mark.virtual_time),
]


@pytest.fixture(params=BOTH)
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A network without hosts."""
    async with open_world(request.param) as made:
        yield made
