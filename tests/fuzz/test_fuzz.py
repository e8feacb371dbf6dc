"""Damaged input by the million: every parser, and the stream handler for bytes from peers.

A finding is written to the corpus, which every later run tries first and damages further.
`python -m tests.fuzz.test_fuzz FIRST COUNT TARGET…` repeats a range of cases.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from libp2p.network.stream.net_stream import NetStream
from libp2p.peer.id import ID
from libp2p.utils.varint import encode_uvarint

from shoal_p2p.gossip.settings import GossipLimits, GossipSettings
from shoal_p2p.net.address import from_libp2p_id
from tests.fuzz.mutate import mutate
from tests.fuzz.targets import CORPUS, TARGETS, _rpcs, originals
from tests.support.nodes import TestNode, fresh_identity, open_test_node

FAST_CASES = 400
SLOW_CASES = 1_000_000
STREAM_SHARE = 0.1
"""Slow cases for the stream handler."""
_STALL_S = 20
_PROCESSES = 2
_ROOT = Path(__file__).resolve().parents[2]


class Stalled(Exception):  # noqa: N818 - what the alarm says
    """A case took too long."""


def _alarm(*_: object) -> None:
    raise Stalled


def run_cases(name: str, first: int, count: int) -> None:
    """Run cases `first` to `first + count` of a target; a finding is saved and raised."""
    target, seeds = TARGETS[name], originals(name)
    signal.signal(signal.SIGALRM, _alarm)
    for number in range(first, first + count):
        data = mutate(random.Random(f"{name}/{number}"), seeds)
        signal.setitimer(signal.ITIMER_REAL, _STALL_S)
        try:
            target.run(data)
        except target.allowed:
            pass
        except Exception as error:
            path = CORPUS / f"{name}-{number}.bin"
            path.write_bytes(data)
            raise AssertionError(f"{name}: case {number}, saved as {path.name}") from error
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.mark.parametrize("name", list(TARGETS))
def test_valid_input_and_saved_trouble(name: str) -> None:
    target = TARGETS[name]
    for data in target.valid:
        target.run(data)
    for data in originals(name):
        try:
            target.run(data)
        except target.allowed:
            continue


@pytest.mark.parametrize("name", list(TARGETS))
def test_damaged_input_is_refused_and_never_more(name: str) -> None:
    run_cases(name, 0, FAST_CASES)


class Bytes(NetStream):
    """A pubsub stream that delivers given bytes and ends; both the muxer's and the one above it."""

    def __init__(self, peer: ID, pieces: list[bytes]) -> None:
        self.muxed_conn: Any = _Connection(peer)
        self.muxed_stream: Any = self
        self._pieces = pieces
        self.was_reset = False

    async def read(self, n: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        return self._pieces.pop(0) if self._pieces else b""

    async def reset(self) -> None:
        self.was_reset = True


class _Connection:
    def __init__(self, peer: ID) -> None:
        self.peer_id = peer


async def run_streams(node: TestNode, first: int, count: int) -> None:
    """Pass damaged RPCs to the stream handler, each on a new stream."""
    seeds = _stream_seeds()
    peer = ID.from_base58(fresh_identity().peer_id)
    for number in range(first, first + count):
        rng = random.Random(f"stream/{number}")
        data = mutate(rng, seeds)
        await _bring(node, peer, data, cut=rng.randrange(len(data) + 1))
        assert node.gossip._mesh.counts["fault"] == 0, f"stream case {number}"


def _stream_seeds() -> list[bytes]:
    seeds = [encode_uvarint(len(rpc)) + rpc for rpc in _rpcs()]
    return [*seeds, b"".join(seeds)]


async def _bring(node: TestNode, peer: ID, data: bytes, *, cut: int) -> None:
    stream = Bytes(peer, [piece for piece in (data[:cut], data[cut:]) if piece])
    with trio.fail_after(_STALL_S):
        await node.gossip._serve(from_libp2p_id(peer), stream)
    assert stream.was_reset


def patient() -> GossipSettings:
    """Limits that ban no peer, since all streams have one peer id."""
    from shoal_p2p.gossip.rate_limiter import FloodLimits

    flood = FloodLimits(pace_per_second=1e6, pace_burst=1e6, waste_per_second=1e6, waste_burst=1e6)
    return GossipSettings(limits=GossipLimits(flood=flood))


async def test_damaged_streams_end_and_never_more() -> None:
    async with open_test_node(settings=patient()) as node:
        await node.subscribe("/t")
        for path in sorted(CORPUS.glob("stream-*.bin")):
            peer = ID.from_base58(fresh_identity().peer_id)
            await _bring(node, peer, path.read_bytes(), cut=1)
            await trio.testing.wait_all_tasks_blocked()
            assert node.gossip._mesh.counts["fault"] == 0, path.name
        await run_streams(node, 0, FAST_CASES)


@pytest.mark.slow
@pytest.mark.timeout(1200)
async def test_a_tenth_of_a_million_damaged_streams() -> None:
    async with open_test_node(settings=patient()) as node:
        await node.subscribe("/t")
        await run_streams(node, FAST_CASES, int(SLOW_CASES * STREAM_SHARE))
        assert len(node.gossip._mesh._duplicates) < 1000


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_nine_tenths_of_a_million_damaged_inputs() -> None:
    share = int(SLOW_CASES * (1 - STREAM_SHARE)) // len(TARGETS) + 1
    names = list(TARGETS)
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.test_fuzz", str(FAST_CASES), str(share), *part],
            cwd=_ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        for part in (names[start::_PROCESSES] for start in range(_PROCESSES))
    ]
    for process in running:
        _, errors = process.communicate(timeout=1200)
        assert process.returncode == 0, errors[-2000:]


if __name__ == "__main__":
    for argument in sys.argv[3:]:
        run_cases(argument, int(sys.argv[1]), int(sys.argv[2]))
