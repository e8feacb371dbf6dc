"""Attacks on connections: churn, and many names from one network."""

from __future__ import annotations

import random
from contextlib import suppress

import trio

from shoal_wire.limits import MANIFEST_PROTOCOL, PEERS_PROTOCOL
from tests.redteam.peer import BROKEN, MESHSUB, AttackerPeer


async def flaps(attacker: AttackerPeer, rng: random.Random) -> None:
    """Disconnect and dial again, a few times."""
    for _ in range(rng.choice((1, 4))):
        for peer_id in sorted(attacker.host.connected_peers()):
            attacker.host.abort(peer_id)
        await trio.sleep(rng.choice((0.0, 0.2)))
        await attacker.meet(rng)


async def crowds(attacker: AttackerPeer, rng: random.Random) -> None:
    """A dozen names of one network, which idle, send one request, or never finish one."""
    protocol = rng.choice((None, MANIFEST_PROTOCOL, PEERS_PROTOCOL))
    block = attacker.host.address.rpartition(".")[0]
    for number in range(rng.choice((3, 12))):
        one = AttackerPeer(
            attacker.world, attacker.captured, f"crowd{rng.random()}", f"{block}.{number}/tcp/0"
        )
        attacker.world._nursery.start_soon(_stand, one, random.Random(rng.random()), protocol)


async def _stand(one: AttackerPeer, rng: random.Random, protocol: str | None) -> None:
    with trio.move_on_after(15.0):
        async with trio.open_nursery() as nursery:
            await nursery.start(one.run)
            await one.meet(rng)
            for target in one.targets(rng):
                if protocol is None:
                    await one.ask(target, rng.choice((MANIFEST_PROTOCOL, PEERS_PROTOCOL)), b"")
                for _ in range(4 if protocol else 0):
                    one.host.start_soon(one.write_slowly, target, protocol, [b"\x00\x00"], 1.5)
            await trio.sleep(rng.choice((0.5, 12.0)))
            nursery.cancel_scope.cancel()


async def idle_streams(attacker: AttackerPeer, rng: random.Random) -> None:
    """Streams without any bytes."""
    for target in attacker.targets(rng):
        for _ in range(rng.choice((1, 30))):
            with suppress(*BROKEN):
                await attacker.host.open(target, (rng.choice((*MESHSUB, PEERS_PROTOCOL)),))
