"""One attacker at full speed, for `benchmarks.flood`: writes as fast as it is read, and when it is
cut off dials again at once, until its time is up. Prints one JSON line.

usage: python -m benchmarks.flood_attacker ADDRESS KIND SECONDS
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from typing import Any, cast

import trio
from libp2p.custom_types import TProtocol
from libp2p.peer.id import ID
from libp2p.pubsub.pb import rpc_pb2

from benchmarks.groups import POLICY, SAMPLING, draw_tasks, make_group
from benchmarks.texts import reasoning
from shoal_p2p.gossip.codec import encode_frame
from shoal_p2p.gossip.messages import sign_message
from shoal_p2p.net.address import parse_peer_address
from shoal_p2p.net.host import DialError, HostSettings, Libp2pHost
from shoal_p2p.net.identity import identity_from_seed
from shoal_p2p.parts import wall_ms
from shoal_p2p.peers.services import fetch_manifest
from shoal_wire.codec import encode_batch
from shoal_wire.envelope import seal
from shoal_wire.manifest import Manifest
from shoal_wire.types import RolloutBatch

MESHSUB = TProtocol("/meshsub/1.1.0")
TASKS, USELESS_BATCHES, GROUPS = 40, 600, 40


class Attacker:
    """Builds the flood before it starts, so that its own CPU time is writing."""

    def __init__(self, host: Libp2pHost, manifest: Manifest) -> None:
        self.host = host
        self._manifest = manifest
        self._raw_id = bytes(ID.from_base58(host.peer_id).to_bytes())
        self._topic = manifest.topics()[0]
        self._seqno = time.time_ns()
        self._sequence = wall_ms()

    def frames(self, kind: str) -> list[bytes]:
        """Return what is written over and over."""
        return KINDS[kind](self)

    def forged(self, size: int, count: int) -> list[bytes]:
        messages = [self._message(os.urandom(size)) for _ in range(count)]
        for message in messages:
            message.signature = bytes(64)
        return [encode_frame(rpc_pb2.RPC(publish=messages))]

    def copies(self) -> list[bytes]:
        message = self._message(self._envelope(1))
        return [encode_frame(rpc_pb2.RPC(publish=[message] * 500))]

    def useless(self) -> list[bytes]:
        messages = [self._message(self._envelope(GROUPS)) for _ in range(USELESS_BATCHES)]
        return [
            encode_frame(rpc_pb2.RPC(publish=messages[start : start + 10]))
            for start in range(0, len(messages), 10)
        ]

    def _message(self, data: bytes) -> rpc_pb2.Message:
        self._seqno += 1
        return sign_message(self.host.identity, self._raw_id, self._topic, data, self._seqno)

    def _envelope(self, num_groups: int) -> bytes:
        self._sequence += 1
        rng = random.Random(self._sequence)
        batch = RolloutBatch(
            swarm_digest=self._manifest.digest,
            sequence=self._sequence,
            round=1,
            created_ms=wall_ms(),
            policy=POLICY,
            sampling=SAMPLING,
            groups=tuple(
                make_group(task, reasoning, rng, num_chars=40, num_completions=2)
                for task in rng.choices(_tasks(), k=num_groups)
            ),
        )
        identity = self.host.identity
        return seal(encode_batch(batch), public_key=identity.public_key_bytes, sign=identity.sign)


KINDS: dict[str, Callable[[Attacker], list[bytes]]] = {
    "invalid": lambda a: a.forged(100, 200),
    "invalid_large": lambda a: a.forged(900_000, 1),
    "duplicate": lambda a: a.copies(),
    "useless": lambda a: a.useless(),
}
_drawn: list[Any] = []


def _tasks() -> list[Any]:
    if not _drawn:
        _drawn.extend(draw_tasks(random.Random(9), TASKS))
    return _drawn


async def main(address: str, kind: str, seconds: float) -> None:
    """Flood for `seconds`."""
    victim = parse_peer_address(address).peer_id
    host = Libp2pHost(
        identity=identity_from_seed(os.urandom(32)),
        settings=HostSettings(listen=("/ip4/127.0.0.1/tcp/0",)),
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(host.run)
        await host.dial(address)
        attacker = Attacker(host, await fetch_manifest(host, victim))
        # In a thread: a loop that stands still answers no pings, and is cut for that.
        frames = await trio.to_thread.run_sync(attacker.frames, kind)
        print("ready", flush=True)
        await trio.to_thread.run_sync(sys.stdin.readline)
        result = await _attack(host, address, victim, frames, seconds)
        print(json.dumps({"peer_id": host.peer_id, **result}), flush=True)
        nursery.cancel_scope.cancel()


async def _attack(
    host: Libp2pHost, address: str, victim: Any, frames: list[bytes], seconds: float
) -> dict[str, Any]:
    started = trio.current_time()
    written = dials = 0
    cut_s: float | None = None
    library = cast("Any", host.libp2p_host)
    with trio.move_on_after(seconds):
        while True:
            try:
                if not host.is_connected(victim):
                    if cut_s is None and written:
                        cut_s = trio.current_time() - started
                    dials += 1
                    await host.dial(address, timeout=5.0)
                stream = await library.new_stream(ID.from_base58(victim), [MESHSUB])
                while True:
                    for frame in frames:
                        await stream.write(frame)
                        written += len(frame)
                        await trio.lowlevel.checkpoint()
            except (DialError, trio.TooSlowError):
                await trio.lowlevel.checkpoint()
            except Exception:  # noqa: BLE001 - any of libp2p's ways to say that it was cut off
                await trio.sleep(0.01)
    return {"cut_s": cut_s, "written_bytes": written, "dials": dials}


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], float(sys.argv[3]))
