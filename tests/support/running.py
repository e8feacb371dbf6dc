"""Runs components of a node during a test's block.

async with running(discovery):
    await trio.sleep(60)
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio


@asynccontextmanager
async def running(*parts: Any) -> AsyncIterator[trio.Nursery]:
    """Start an object with a `run` that reports when it is ready; cancel it at the end."""
    async with trio.open_nursery() as nursery:
        for part in parts:
            await nursery.start(part.run)
        yield nursery
        nursery.cancel_scope.cancel()
