"""A whole node under attack, in a thread with its own loop, observed by a probe in that loop.

    with Victim(tmp_path / "node") as victim:          # a whole real node
        async with open_hostile(victim) as attacker: … # raw libp2p, in the test's own loop
        await still_works(victim)

Only the task worker is replaced, by an instant one: attacks target the loop, not the worker.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import trio
from libp2p.pubsub.pb import rpc_pb2

from shoal_p2p.net.host import Libp2pHost
from shoal_p2p.peers.outside import wall_ms
from shoal_p2p.reputation.scoring import Cause
from shoal_wire.types import PeerId
from tests.support import factories as make
from tests.support.network import HostilePeer, signed_by
from tests.support.nodes import open_test_host, until
from tests.support.peers import INSTANT
from tests.support.running_node import RunningNode

NOT_STALLED_S = 5.0
"""Maximum pause of the loop that still counts as running, on a busy machine."""
GROWTH_BYTES = 96 << 20
_TICK_S = 0.02


class Victim(RunningNode):
    """A node that listens on loopback, and its loop's longest pause."""

    def __init__(self, data_dir: Path, **changes: Any) -> None:
        super().__init__(data_dir, parts=INSTANT, **changes)
        self.thread_id: int
        self.longest_pause_s = 0.0
        self.ticks = 0
        self.now = 0.0
        """The clock of its loop, which differs from the test's: each Trio run has its own."""

    @property
    def peer_id(self) -> PeerId:
        """Its peer id."""
        return self.node.member.peer_id

    @property
    def topic(self) -> str:
        """The first topic it listens to."""
        return self.node.member.gossip.topics()[0]

    def counts(self) -> Counter[str]:
        """Gossip's counters."""
        return Counter(self.node.member.gossip.stats().pubsub)

    def score(self, peer_id: PeerId) -> float:
        """Return a peer's score."""
        return self.node.member.guard.reputation.score(peer_id, self.now)

    def points(self, peer_id: PeerId) -> dict[Cause, float]:
        """Return a peer's score by cause."""
        board = self.node.member.guard.reputation.board
        return dict(board.row(peer_id, self.now).points)

    def is_cut(self, peer_id: PeerId) -> bool:
        """Return whether a peer is banned and disconnected."""
        host = self.node.member.host
        return host._admission.is_banned(peer_id, self.now) and not host.is_connected(peer_id)

    def rss(self) -> int:
        """Resident memory of the process, including the test's own, so an upper bound."""
        return int(psutil.Process().memory_info().rss)

    def __enter__(self) -> Victim:
        """Start the node, and the probe in its loop."""
        super().__enter__()
        self.thread_id = self.call(threading.get_ident)
        self._life.callback(self._portal.start_task_soon(self._probe).cancel)
        return self

    async def _probe(self) -> None:
        while True:
            before = trio.current_time()
            await trio.sleep(_TICK_S)
            self.ticks += 1
            self.now = trio.current_time()
            pause = trio.current_time() - before - _TICK_S
            self.longest_pause_s = max(self.longest_pause_s, pause)


class Attacker(HostilePeer):
    """A hostile host connected to a victim, with an author's key."""

    def __init__(self, host: Libp2pHost, victim: Victim) -> None:
        super().__init__(host, victim.peer_id)
        self.victim = victim
        self.author = make.Author(
            victim.node.member.manifest, identity=host.identity, now_ms=wall_ms()
        )
        self._seqno = 0

    @property
    def peer_id(self) -> PeerId:
        """Its peer id."""
        return self.host.peer_id

    def message(self, data: bytes, *, topic: str | None = None) -> rpc_pb2.Message:
        """Return a signed pubsub message of its own."""
        self._seqno += 1
        return signed_by(self.host.identity, topic or self.victim.topic, data, self._seqno)

    async def publish(self, *data: bytes) -> Any:
        """Send messages in one RPC on a new stream; return the stream."""
        return await self.send_rpc(rpc_pb2.RPC(publish=[self.message(each) for each in data]))

    async def flood(self, frame: bytes, *, seconds: float = 30.0) -> float:
        """Write `frame` as fast as possible until disconnected; return the seconds that took.

        Raises trio.TooSlowError if it is never disconnected.
        """
        started = trio.current_time()
        with trio.fail_after(seconds):
            try:
                stream = await self.open_stream()
                while True:
                    await stream.write(frame)
                    await trio.lowlevel.checkpoint()
            except trio.TooSlowError:
                raise
            except Exception:  # noqa: BLE001 - any of libp2p's ways to say that the stream is gone
                await until(lambda: self.victim.is_cut(self.peer_id), patience_s=seconds)
        return trio.current_time() - started


@asynccontextmanager
async def open_hostile(victim: Victim) -> AsyncIterator[Attacker]:
    """Connect a new hostile host to a victim."""
    async with open_test_host() as host:
        await host.dial(victim.address)
        await until(lambda: victim.node.member.host.is_connected(host.peer_id))
        yield Attacker(host, victim)


async def still_works(victim: Victim) -> None:
    """Check that an honest new peer's batch reaches the buffer, and the loop never stalled."""
    before = victim.node.counters.groups_received
    async with open_hostile(victim) as honest:
        await honest.publish(honest.author.envelope())
        await until(lambda: victim.node.counters.groups_received > before)
        assert victim.score(honest.peer_id) == 0.0
    ticks = victim.ticks
    await until(lambda: victim.ticks > ticks)
    assert victim.longest_pause_s < NOT_STALLED_S
    assert victim.counts()["fault"] == 0
