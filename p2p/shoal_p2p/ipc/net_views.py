"""The debug view that asks the network: `doctor`."""

from __future__ import annotations

import math
import random
import resource
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import trio

from shoal_base.waits import REPLY_S
from shoal_ipc.answers.doctor import (
    GRAVITY,
    BootstrapSeen,
    Doctor,
    Facts,
    FullSeen,
    MappingSeen,
    OutsideSeen,
    ReachSeen,
)
from shoal_ipc.answers.node import Status, TrainerView
from shoal_ipc.answers.peer import KeyFile
from shoal_p2p.gossip.settings import MeshSettings
from shoal_p2p.ipc.checks.seen import Seen
from shoal_p2p.ipc.checks.swarm import FULL_DO
from shoal_p2p.ipc.doctor import diagnose
from shoal_p2p.ipc.join_addresses import join_addresses
from shoal_p2p.net.address import has_non_loopback_address, is_circuit, parse_peer_address
from shoal_p2p.net.host import DialError, RequestError
from shoal_p2p.net.swarm_key import SwarmKeyError, key_of_settings
from shoal_p2p.peers.outside import ReachabilityReport, ask_outside, tcp_ports
from shoal_p2p.peers.port_mapping import MappingState
from shoal_p2p.peers.witnesses import witnesses
from shoal_p2p.swarm_node import SwarmNode
from shoal_p2p.trainer_child import ending
from shoal_wire.types import PeerId

_MAX_ASKED = 8
"""Peers that are asked how this one looks: enough for a median of clocks."""
_DIAL_SECONDS = 0.4 * REPLY_S
"""Deadline of a dial, in seconds: two in a row fit in what a reader waits."""
_FULL_SECONDS = 600.0
"""Seconds for which the doctor reports a lack of room: newcomers come again within minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Around:
    at: float
    alone: bool
    outside: list[ReachabilityReport]
    bootstraps: list[BootstrapSeen]


class NetViews:
    """The views of any peer, given its status view."""

    def __init__(
        self, member: SwarmNode, status: Callable[[Mapping[str, Any]], Awaitable[Status]]
    ) -> None:
        self._member = member
        self._status = status
        self._rng = random.Random()
        self._around: _Around | None = None
        """The latest answers of peers and bootstraps."""

    async def doctor(self, options: Mapping[str, Any]) -> Doctor:
        """Ask peers how this node looks, and say what is wrong. Takes five seconds at most.

        Option: `within_s`, so old may be what peers said; a program that asks again and again
        spares them. Without it they are asked.
        """
        around = await self._asked(float(options.get("within_s", 0.0)))
        status = await self._status({})
        facts = await self._facts(around, status.trainer)
        findings = diagnose(Seen(status=status, facts=facts))
        worst = max((one.state for one in findings), key=GRAVITY.index)
        return Doctor(
            peer_id=status.peer_id,
            swarm=status.swarm,
            state=worst,
            findings=findings,
            facts=facts,
        )

    async def _facts(self, around: _Around, trainer: TrainerView | None) -> Facts:
        member, gossip = self._member, self._member.gossip
        listens = member.host.listen_addrs()
        ports = tcp_ports(listens)
        settings = member.peer.settings
        return Facts(
            listen_addresses=tuple(_transport(address) for address in listens),
            has_network=has_non_loopback_address(),
            reach=self._reach(),
            full=self._full(),
            key=await member.peer.parts.in_thread(self._key),
            bootstraps=tuple(sorted(around.bootstraps, key=lambda seen: seen.address)),
            reachability=tuple(self._seen(seen, ports) for seen in around.outside),
            subscribers={topic: len(gossip.topic_peers(topic)) for topic in gossip.topics()},
            mesh_low=MeshSettings().degree_low,
            clock_limit_ms=1000 * member.manifest.rules.max_future_seconds,
            uses_external_groups=settings.external > 0 and settings.role != "generate",
            trainer_error="" if trainer is None else _last_words(trainer),
            files_open=psutil.Process().num_fds(),
            files_limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            addresses=join_addresses(
                member.peer_id,
                listens,
                outside=around.outside,
                ports=ports,
                bootstraps=around.bootstraps,
            ),
            allowed_peers=len(member.manifest.rules.allowed_peers),
        )

    async def _asked(self, within_s: float) -> _Around:
        """Ask around, unless that was done so lately and nobody was lost or found since."""
        now, last = trio.current_time(), self._around
        alone = not self._member.host.connected_peers()
        if last and now - last.at < within_s and last.alone == alone:
            return last
        outside, bootstraps = await self._ask_around(tcp_ports(self._member.host.listen_addrs()))
        self._around = _Around(at=now, alone=alone, outside=outside, bootstraps=bootstraps)
        return self._around

    async def _ask_around(
        self, ports: tuple[int, ...]
    ) -> tuple[list[ReachabilityReport], list[BootstrapSeen]]:
        """Ask some peers how this one looks, and try every bootstrap, all at once."""
        outside: list[ReachabilityReport] = []
        bootstraps: list[BootstrapSeen] = []

        async def ask(peer_id: PeerId) -> None:
            if seen := await ask_outside(self._member.host, peer_id, ports=ports):
                outside.append(seen)

        async with trio.open_nursery() as nursery:
            connections = self._member.host.connections()
            for peer_id in witnesses(connections, self._rng, most=_MAX_ASKED):
                nursery.start_soon(ask, peer_id)
            for address in self._member.peer.settings.bootstrap:
                nursery.start_soon(self._try_bootstrap, address, bootstraps)
        return outside, bootstraps

    async def _try_bootstrap(self, address: str, found: list[BootstrapSeen]) -> None:
        host = self._member.host
        peer_id = parse_peer_address(address).peer_id
        latency_ms, error, mends = None, "", ""
        if peer_id == host.peer_id:
            return
        full_s = self._member.discovery.full_s(peer_id)
        if full_s is not None:  # to dial it now would cost somebody a slot
            found.append(BootstrapSeen(address=address, latency_ms=None, full_backoff_s=full_s))
            return
        try:
            await host.dial(address, timeout=_DIAL_SECONDS)
            latency_ms = round(await host.ping(peer_id, timeout=_DIAL_SECONDS), 3)
        except DialError as failure:
            denial = failure.denial
            error, mends = (denial.message, denial.remedy) if denial else (str(failure), "")
            if failure.is_closed_early:
                mends = FULL_DO
        except RequestError as failure:
            error = str(failure)
        seen = BootstrapSeen(address=address, latency_ms=latency_ms, error=error, remedy=mends)
        found.append(seen)

    def _reach(self) -> ReachSeen:
        peer = self._member.peer
        mapping = peer.port_mapping
        direct, tried = peer.punches.counts
        return ReachSeen(
            mapping=None
            if mapping.state is MappingState.NEEDLESS
            else MappingSeen(state=mapping.state, address=mapping.place, error=mapping.error),
            direct_attempts=tried,
            direct_successes=direct,
            relayed=sum(is_circuit(c.address) for c in peer.host.connections()),
            is_symmetric_nat=peer.punches.is_symmetric_nat,
            announced=peer.settings.announce,
        )

    def _full(self) -> FullSeen | None:
        room = self._member.guard.conn_manager
        ago_s = math.inf if room.full_at is None else trio.current_time() - room.full_at
        if ago_s > _FULL_SECONDS:
            return None
        return FullSeen(
            slots=self._member.peer.settings.max_connections,
            disconnected=room.num_disconnected,
            refused=room.num_refused,
            ago_s=round(ago_s, 1),
        )

    def _key(self) -> KeyFile | None:
        """Read the key's file again: who has changed it expects the change to be in force."""
        settings = self._member.peer.settings
        if settings.swarm_key == "none":
            return None
        try:
            same = key_of_settings(settings) == self._member.peer.swarm_key
        except SwarmKeyError as error:
            return KeyFile(file=settings.swarm_key, problem=str(error))
        changed = f"{settings.swarm_key} has another key than when this one started"
        file = str(Path(settings.swarm_key).absolute())  # for programs that run in another folder
        return KeyFile(file=file, problem="" if same else changed)

    def _seen(self, seen: ReachabilityReport, ports: tuple[int, ...]) -> OutsideSeen:
        return OutsideSeen(
            peer_id=seen.peer_id,
            # Identify's word where the peer does not answer this one's.
            observed=seen.observed or self._member.host.observed_address(seen.peer_id),
            dialled=seen.dialled,
            reached=any(port in ports for port in seen.open_ports),
            clock_ahead_ms=seen.clock_ahead_ms,
        )


def _transport(address: str) -> str:
    return address.rpartition("/p2p/")[0] or address


def _last_words(trainer: TrainerView) -> str:
    """Say how the last trainer that failed ended, and when there is another; empty for none."""
    if not trainer.last_exit:
        return ""
    wait = trainer.next_start_s
    when = "" if wait is None else f"; next start in {wait:.0f} s"
    return f"{ending(trainer.last_exit)}: {trainer.last_error or 'it said nothing'}{when}"
