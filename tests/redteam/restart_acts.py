"""Attacks by the bootstrap peer of a node that restarts."""

from __future__ import annotations

import random

from shoal_wire.limits import MANIFEST_PROTOCOL
from shoal_wire.manifest import make_manifest
from shoal_wire.types import PeerId
from tests.redteam.peer import Red


async def another_manifest(red: Red, rng: random.Random) -> None:
    """Be the bootstrap of a restarting node, in another swarm."""
    own = red.world.manifest
    other = make_manifest(f"taken over {rng.getrandbits(32):x}", own.families, own.rules)

    async def answer(_peer: PeerId, _request: bytes) -> bytes:
        return other.raw

    red.serve(MANIFEST_PROTOCOL, answer)
    up = [member for member in red.world.of_kind("honest") if member.node is not None]
    if not up:
        return
    member = rng.choice(up)
    await red.world.kill(member)
    await red.world.start(member, also=(f"{red.host.address}/p2p/{red.peer_id}",))
