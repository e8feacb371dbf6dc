"""Hostile acts over real sockets against one whole node, and the invariants that must hold.

    a node, an honest neighbour ─▶ acts, sometimes a newcomer ─▶ attackers leave ─▶ checks

`attack_run` simulates everything below streams. Here muxer, encryption, identify, circuits and hole
punching are the real ones. Steps and random choices come from a seed, their timing from the
machine.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import trio

from shoal_p2p.net.windows import MAX_UNREAD_BYTES
from shoal_p2p.peers.address_policy import DIALS_PER_ADDRESS
from shoal_wire.limits import MANIFEST_PROTOCOL, MAX_MANIFEST_BYTES
from tests.redteam import frame_acts, reach_acts, talk_acts
from tests.redteam.faults import faults
from tests.redteam.schedule import public_coroutines
from tests.redteam.sizes import measure_containers
from tests.redteam.wire_peer import WireAttacker, open_attackers
from tests.support.nodes import open_test_host, until
from tests.support.victim import Attacker, Victim, open_hostile, still_works

WireAct = Callable[[WireAttacker, random.Random], Awaitable[None]]

WIRE_ACTS: Mapping[str, WireAct] = {
    name: act
    for module in (frame_acts, reach_acts, talk_acts)
    for name, act in public_coroutines(module)
}
NUM_REDS = 2
MAX_STREAMS = 64 + 64
"""Streams on one connection: served ones, and those being refused."""
MAX_HELD_BYTES = (16 << 20) + 2 * NUM_REDS * MAX_UNREAD_BYTES
MAX_TASKS_LEFT = 12
"""Additional bytes compared with before the attack, after all attackers have left."""
MAX_LURED = 2 * int(DIALS_PER_ADDRESS.burst)
"""Connections to a third party whose address the attacker sent, during one attack."""
_ACT_S = 12.0
_OWN_FAULTS = ("KeyError", "AttributeError", "IndexError", "AssertionError", "NameError")
_OWN_FAULTS += ("UnboundLocalError", "RecursionError", "NotImplementedError", "InvalidStateError")  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class WireStep:
    """One act of one attacker."""

    who: int
    act: str
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WireAttackRun:
    """The attack of one run."""

    seed: int
    steps: tuple[WireStep, ...]


def draw_wire_attack(seed: int, *, num_steps: int | None = None) -> WireAttackRun:
    """Draw one: few acts often, or all of them."""
    rng = random.Random(f"skirmish {seed}")
    names = sorted(WIRE_ACTS)
    kinds = rng.sample(names, rng.choice((1, 2, 4, len(names))))
    steps = tuple(
        WireStep(who=rng.randrange(NUM_REDS), act=rng.choice(kinds), seed=rng.getrandbits(32))
        for _ in range(num_steps or rng.choice((4, 8, 16)))
    )
    return WireAttackRun(seed=seed, steps=steps)


def is_fault(record: logging.LogRecord) -> bool:
    """Return whether this was logged with a traceback, as failed, or as the node's fault."""
    text = record.getMessage()
    warned = record.levelno >= logging.WARNING and "failed" in text
    return bool(record.exc_info) or warned or any(name in text for name in _OWN_FAULTS)


@dataclass(slots=True)
class _WireRun:
    victim: Victim
    attack: WireAttackRun
    honest: Attacker
    done: Counter[str]
    lured: Counter[str] = field(default_factory=Counter)

    async def acts(self, attackers: list[WireAttacker]) -> None:
        for step in self.attack.steps:
            with suppress(Exception), trio.move_on_after(_ACT_S):
                await attackers[step.who].ensure_connection()
                await WIRE_ACTS[step.act](attackers[step.who], random.Random(step.seed))
                self.done[step.act] += 1
            await self._check()

    async def visits(self) -> None:
        """Join as a newcomer during the attack."""
        while True:
            await trio.sleep(1.0)
            tries = [await self._is_served() for _ in range(2)]
            assert any(tries), f"[seed {self.attack.seed}] a newcomer gets no reply"

    async def _is_served(self) -> bool:
        async with open_test_host() as client:
            with suppress(Exception):
                await client.dial(self.victim.address, timeout=5.0)
                raw = await client.request(
                    self.victim.peer_id,
                    MANIFEST_PROTOCOL,
                    b"",
                    max_response_bytes=MAX_MANIFEST_BYTES,
                    timeout=5.0,
                )
                return raw == self.victim.node.manifest.raw
        return False

    async def _check(self) -> None:
        victim, prefix = self.victim, f"[seed {self.attack.seed}]"
        assert victim.score(self.honest.peer_id) == 0.0, f"{prefix} an honest neighbour is blamed"
        assert victim.node.member.host.is_connected(self.honest.peer_id), (
            f"{prefix} and disconnected"
        )
        streams, held = await trio.to_thread.run_sync(victim.call, partial(_load, victim))
        assert streams <= MAX_STREAMS, f"{prefix} {streams} streams on one connection"
        assert held < MAX_HELD_BYTES, f"{prefix} {held} bytes held"
        most = max(self.lured.values(), default=0)
        assert most <= MAX_LURED, f"{prefix} {most} dials of a third party"


async def _load(victim: Victim) -> tuple[int, int]:
    await trio.lowlevel.checkpoint()
    inner: Any = victim.node.member.host.libp2p_host  # type: ignore[attr-defined]
    connections = inner.get_network().get_connections()
    streams = max((len(one.muxed_conn.streams) for one in connections), default=0)
    muxed = [one.muxed_conn for one in connections]
    held = measure_containers({"node": victim.node, "connections": muxed})
    return streams, sum(one.num_bytes for one in held.values())


async def _num_tasks() -> int:
    await trio.lowlevel.checkpoint()
    return trio.lowlevel.current_statistics().tasks_living


@asynccontextmanager
async def _lures(fight: _WireRun) -> AsyncIterator[list[str]]:
    """Listen as third parties and count connections, except those of the attackers themselves.

    The victim receives the first address, peers that trust an attacker the others.
    """

    async def accept(stream: trio.SocketStream) -> None:
        fight.lured[str(stream.socket.getsockname()[1])] += 1
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = [
            listener
            for _ in range(1 + NUM_REDS)
            for listener in await trio.open_tcp_listeners(0, host="127.0.0.1")
        ]
        nursery.start_soon(trio.serve_listeners, accept, listeners)
        yield [f"/ip4/127.0.0.1/tcp/{one.socket.getsockname()[1]}" for one in listeners]
        nursery.cancel_scope.cancel()


async def fight(victim: Victim, attack: WireAttackRun) -> Counter[str]:
    """Play one; return the completed acts. Raises AssertionError."""
    victim.longest_pause_s = 0.0
    async with open_hostile(victim) as honest:
        before = await trio.to_thread.run_sync(victim.call, _num_tasks)
        run = _WireRun(victim, attack, honest, Counter())
        async with (
            _lures(run) as lures,
            open_attackers(victim, *lures) as attackers,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(run.visits)
            await run.acts(attackers)
            nursery.cancel_scope.cancel()
        host = victim.node.member.host
        await until(lambda: host.connected_peers() == {honest.peer_id})
        await _until_few_tasks(victim, before + MAX_TASKS_LEFT)
        received = victim.node.counters.groups_received
        await honest.publish(honest.author.envelope())
        await until(lambda: victim.node.counters.groups_received > received)
    await still_works(victim)
    return run.done


async def _until_few_tasks(victim: Victim, most: int) -> None:
    left = most + 1
    with trio.move_on_after(40.0):
        while left > most:
            await trio.sleep(0.2)
            left = await trio.to_thread.run_sync(victim.call, _num_tasks)
    assert left <= most, f"{left} tasks are left, of {most}"


def play_wire(folder: Path, *attacks: WireAttackRun) -> Counter[str]:
    """Play several, one after the other, against one node. Raises AssertionError."""
    done: Counter[str] = Counter()
    with Victim(folder, relay=True, relay_client="on") as victim:
        thread = victim.thread_id

        def is_victims(record: logging.LogRecord) -> bool:
            return record.thread == thread and is_fault(record)

        with faults(["shoal_p2p"], logging.DEBUG, is_victims) as found:
            for attack in attacks:
                done += trio.run(fight, victim, attack)
                assert not found, f"[seed {attack.seed}] {found[:3]}"
    return done
