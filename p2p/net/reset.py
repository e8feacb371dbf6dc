"""End a stream, whatever its state."""

from __future__ import annotations

import logging

import trio
from libp2p.abc import INetStream

logger = logging.getLogger(__name__)

_RESET_DEADLINE_S = 1.0


async def reset_stream(stream: INetStream) -> None:
    """Reset `stream`, whatever its state, within a second."""
    with trio.move_on_after(_RESET_DEADLINE_S) as scope:
        scope.shield = True
        try:
            await stream.reset()
        except Exception as error:  # noqa: BLE001 - already broken, which is what we want
            logger.debug("reset failed: %r", error)
