"""The way of one batch through a node, call by call: whoever makes it longer meets this test.

A call *carries the message* if one of its arguments is the whole of it: the bytes as they travel,
the opened envelope, the batch in it, or the event that tells of it. Calls that get a part of it
(the payload, a group) or a number out of it do not.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import trio
import trio.testing

from p2p.buffer.replay import ReplayBuffer
from p2p.data_dir import save_manifest
from p2p.events import BatchKept
from p2p.intake.intake import Intake
from p2p.intake.ledger import PublisherLedger
from p2p.live_node import LiveNode
from p2p.node import Node
from p2p.rollouts.outbox import Outbox
from p2p.rollouts.pool import RolloutPool
from p2p.rollouts.recent import RecentRollouts
from p2p.store.archive import Archive
from p2p.store.store import Store
from shoal.simulation.network import SimulatedNetwork
from shoal.simulation.parts import NoSocket, at_once, simulated_parts
from shoal.testing.gossip import FakeGossip
from shoal.testing.worker import InstantWorker
from shoal_wire.envelope import SignedEnvelope
from shoal_wire.types import RolloutBatch, SignedBatch
from shoal_wire.verdict import ACCEPT
from tests.p2p.buffer.entries import limits
from tests.support import factories as make
from tests.support.nodes import until
from tests.support.running_node import quiet_settings

MANIFEST = make.swarm()
GROUPS = 3
MAX_CARRYING_RECEIVED = 14
MAX_CARRYING_OWN = 8
MAX_ENTRIES = 2
"""Times that a carrying call may come into one file from another."""

_ROOT = Path(__file__).resolve().parents[2]
_PRODUCT = (f"{_ROOT}/p2p/", f"{_ROOT}/proto/")
_FORMS = (SignedEnvelope, RolloutBatch, SignedBatch, BatchKept)


@dataclass(frozen=True)
class Call:
    """One call of a product function."""

    name: str
    file: str
    caller: str
    """The file of the product function that called, empty if none did."""
    carries: bool


class Walk:
    """All calls into the product while it is recording, in order."""

    def __init__(self, envelope: bytes) -> None:
        self.calls: list[Call] = []
        self.envelope = envelope
        self._begun: set[FrameType] = set()

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what is called in this thread."""
        before = sys.getprofile()
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(before)
            self._begun.clear()

    def count(self, name: str) -> int:
        """Return how often a function was called."""
        return sum(call.name == name for call in self.calls)

    def until(self, name: str) -> list[Call]:
        """Return the carrying calls before a function is called for the first time."""
        end = next(at for at, call in enumerate(self.calls) if call.name == name)
        return [call for call in self.calls[:end] if call.carries]

    def entries(self) -> Counter[str]:
        """Return how often carrying calls came into each file from another."""
        return Counter(
            call.file for call in self.calls if call.carries and call.file != call.caller
        )

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(_PRODUCT):
            return
        if frame in self._begun:  # a coroutine goes on
            return
        self._begun.add(frame)
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(_PRODUCT):
            caller = caller.f_back
        self.calls.append(
            Call(
                name=frame.f_code.co_qualname,
                file=_name_of(frame),
                caller="" if caller is None else _name_of(caller),
                carries=any(self._is_message(value) for value in _arguments(frame)),
            )
        )

    def _is_message(self, value: Any) -> bool:
        return isinstance(value, _FORMS) or (isinstance(value, bytes) and value == self.envelope)


def _name_of(frame: FrameType) -> str:
    return str(Path(frame.f_code.co_filename).relative_to(_ROOT))


def _arguments(frame: FrameType) -> list[Any]:
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return [frame.f_locals[name] for name in names]


class Bench:
    """Intake, pool, outbox and store of a node, in one thread."""

    def __init__(self, folder: Path) -> None:
        self.me = make.fresh_identity()
        self.buffer = ReplayBuffer(limits(), random.Random(0))
        self.store = Store(
            folder / "node.db", peer_id=self.me.peer_id, wall_ms=_wall_ms, in_thread=at_once
        )
        self.recent = RecentRollouts()
        self.pool = RolloutPool(
            buffer=self.buffer,
            store=self.store,
            me=self.me.peer_id,
            manifest=MANIFEST,
            max_age_seconds=3600.0,
            max_store_bytes=1 << 30,
            wall_ms=_wall_ms,
            keepers=(self.recent, Archive(folder / "archive.db", max_bytes=1 << 20)),
            in_thread=at_once,
        )
        self.outbox = Outbox(
            manifest=MANIFEST,
            peer_id=self.me.peer_id,
            signer=self.me,
            store=self.store,
            gossip=FakeGossip(),
            wall_ms=_wall_ms,
        )
        self.intake = Intake(
            context=make.context(MANIFEST, self.me.peer_id),
            questions=InstantWorker(),
            ledger=PublisherLedger(),
            keep=self.pool.keep_all,
            accuse=self.pool.withdraw,
            wall_ms=_wall_ms,
        )


def _wall_ms() -> int:
    return make.NOW_MS


async def test_the_way_of_a_batch_that_gossip_brings(tmp_path: Path, nursery: trio.Nursery) -> None:
    bench, author = Bench(tmp_path), make.Author(MANIFEST)
    raw = author.envelope(author.batch([make.group(number) for number in range(GROUPS)]))
    await nursery.start(bench.store.run)
    await nursery.start(bench.intake.run)
    walk = Walk(raw)
    with walk.recording():
        verdict = await bench.intake.validate(raw, author.peer_id, author.peer_id)
        await trio.testing.wait_all_tasks_blocked()
    assert verdict == ACCEPT
    assert bench.buffer.ready() == len(bench.recent.after(0, limit=9)) == GROUPS

    assert walk.count("open_envelope") == walk.count("decode_batch") == 1
    assert walk.count("_content_id") == GROUPS
    assert walk.count("group_to_bytes") == walk.count("group_to_pb") == 0
    way = walk.until("ReplayBuffer.insert")
    assert len(way) <= MAX_CARRYING_RECEIVED, _drawn(way)
    assert max(walk.entries().values()) <= MAX_ENTRIES, walk.entries()


async def test_in_a_whole_node_the_way_is_as_short(tmp_path: Path, nursery: trio.Nursery) -> None:
    author, found = make.Author(MANIFEST), list[LiveNode]()
    ready = trio.Event()

    def on_ready(live: LiveNode) -> None:
        found.append(live)
        ready.set()

    save_manifest(tmp_path, MANIFEST)
    node = Node(
        identity=make.fresh_identity(),
        settings=quiet_settings(tmp_path, listen=("/ip4/127.0.0.1/tcp/4001",)),
        on_ready=on_ready,
        socket=NoSocket,
        parts=simulated_parts(
            SimulatedNetwork(random.Random(0)),
            worker=lambda _families, _patience_s: InstantWorker(),
            wall_ms=_wall_ms,
            rng=random.Random(0),
        ),
    )
    nursery.start_soon(node.run)
    await ready.wait()
    (live,) = found
    raw = author.envelope(author.batch([make.group(number) for number in range(GROUPS)]))
    walk = Walk(raw)
    with walk.recording():
        verdict = await live.member.intake.validate(raw, author.peer_id, author.peer_id)
        await until(lambda: len(live.exchange.shelf) == 1)
    assert verdict == ACCEPT
    assert live.buffer.ready() == GROUPS
    way = walk.until("ReplayBuffer.insert")
    assert len(way) <= MAX_CARRYING_RECEIVED, _drawn(way)
    assert max(walk.entries().values()) <= MAX_ENTRIES, walk.entries()


async def test_the_way_of_an_own_batch(tmp_path: Path, nursery: trio.Nursery) -> None:
    bench = Bench(tmp_path)
    await nursery.start(bench.store.run)
    request, same = (
        make.publish([make.group(number) for number in range(GROUPS)]) for _ in range(2)
    )
    # Clock and signatures are certain here, so the bytes are known before they are made.
    walk = Walk(bench.outbox.seal(same, 1, 0).envelope)
    with walk.recording():
        own = await bench.outbox.accept(request)
        assert own.signed is not None
        assert own.signed.envelope == walk.envelope
        bench.pool.keep_own(own.signed)
    assert bench.buffer.stats(trio.current_time()).own_groups == GROUPS
    assert len(bench.recent.after(0, limit=9)) == GROUPS

    assert walk.count("seal") == walk.count("batch_to_bytes") == 1
    assert walk.count("open_envelope") == walk.count("decode_batch") == 0
    assert walk.count("_content_id") == walk.count("group_to_pb") == GROUPS
    assert walk.count("group_to_bytes") == 0
    way = walk.until("ReplayBuffer.note_own")
    assert len(way) <= MAX_CARRYING_OWN, _drawn(way)
    assert max(walk.entries().values()) <= MAX_ENTRIES, walk.entries()


async def test_what_is_left_of_an_earlier_run_is_verified(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    bench = Bench(tmp_path)
    await nursery.start(bench.store.run)
    own = await bench.outbox.accept(make.publish([make.group(1)]))
    assert own.signed is not None
    walk = Walk(own.signed.envelope)
    with walk.recording():
        await bench.pool.restore(PublisherLedger())
        await nursery.start(bench.outbox.run)
    assert bench.buffer.stats(trio.current_time()).own_groups == 1
    # Once for what is shown of it, once for what is still to be sent.
    assert walk.count("open_envelope") == walk.count("decode_batch") == 2


def _drawn(way: list[Call]) -> str:
    return "\n".join(f"{call.file}: {call.name}" for call in way)
