"""Starts a node that ends with this program."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.api.groups import SwarmError
from shoal.started_peer import PeerEndedError, StartedPeer


def start_node(invitation: str, flags: Sequence[str]) -> StartedPeer:
    """Start a node and wait until it is ready. Without an invitation it starts a swarm.

    Raises:
        SwarmError: it ended, or was not ready in time.
    """
    # The invitation goes through the pipe: every user can read arguments in the process list.
    command = ["join", "-"] if invitation else ["node"]
    node = StartedPeer([*command, "--no-http", *flags], stdin=f"{invitation}\n")
    try:
        node.ready()
    except PeerEndedError as error:
        node.stop()
        raise SwarmError(str(error)) from None
    except BaseException:
        node.stop()
        raise
    return node
