"""Attacks by the bootstrap peer of a node that restarts."""

from __future__ import annotations

import random

from shoal_wire.limits import MANIFEST_PROTOCOL
from shoal_wire.manifest import make_manifest
from shoal_wire.types import PeerId
from tests.redteam.peer import AttackerPeer


async def another_manifest(attacker: AttackerPeer, rng: random.Random) -> None:
    """Be the bootstrap of a restarting node, in another swarm."""
    own = attacker.world.manifest
    other = make_manifest(f"taken over {rng.getrandbits(32):x}", own.families, own.rules)

    async def answer(_peer: PeerId, _request: bytes) -> bytes:
        return other.raw

    attacker.serve(MANIFEST_PROTOCOL, answer)
    up = [member for member in attacker.world.of_kind("honest") if member.node is not None]
    if not up:
        return
    member = rng.choice(up)
    await attacker.world.kill(member)
    await attacker.world.start(member, also=(f"{attacker.host.address}/p2p/{attacker.peer_id}",))
