"""The debug view that queries other peers: `doctor`."""

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
from shoal_p2p.ipc.checks.swarm import FULL_REMEDY
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
"""Peers asked what they see of this one: enough for a median of clocks."""
_DIAL_SECONDS = 0.4 * REPLY_S
"""Deadline of a dial, in seconds: two in a row fit in the deadline of the reader."""
_FULL_SECONDS = 600.0
"""Seconds for which the doctor reports a full node: newcomers try again within minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _NetworkReport:
    at: float
    is_isolated: bool
    outside: list[ReachabilityReport]
    bootstraps: list[BootstrapSeen]


class NetViews:
    """The `doctor` view of any peer, given its status view."""

    def __init__(
        self, member: SwarmNode, status: Callable[[Mapping[str, Any]], Awaitable[Status]]
    ) -> None:
        self._member = member
        self._status = status
        self._rng = random.Random()
        self._report: _NetworkReport | None = None
        """The latest answers of peers and bootstraps."""

    async def doctor(self, options: Mapping[str, Any]) -> Doctor:
        """Ask peers what they see of this node, and diagnose it. Takes five seconds at most.

        Option: `within_s`, the greatest age in seconds of peers' answers that may be reused, for
        programs that poll. Without it, peers are asked each time.
        """
        report = await self._fresh_report(float(options.get("within_s", 0.0)))
        status = await self._status({})
        facts = await self._facts(report, status.trainer)
        findings = diagnose(Seen(status=status, facts=facts))
        worst = max((one.state for one in findings), key=GRAVITY.index)
        return Doctor(
            peer_id=status.peer_id,
            swarm=status.swarm,
            state=worst,
            findings=findings,
            facts=facts,
        )

    async def _facts(self, report: _NetworkReport, trainer: TrainerView | None) -> Facts:
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
            bootstraps=tuple(sorted(report.bootstraps, key=lambda seen: seen.address)),
            reachability=tuple(self._seen(seen, ports) for seen in report.outside),
            subscribers={topic: len(gossip.topic_peers(topic)) for topic in gossip.topics()},
            mesh_low=MeshSettings().degree_low,
            clock_limit_ms=1000 * member.manifest.rules.max_future_seconds,
            uses_external_groups=settings.external > 0 and settings.role != "generate",
            trainer_error="" if trainer is None else _trainer_error(trainer),
            files_open=psutil.Process().num_fds(),
            files_limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            addresses=join_addresses(
                member.peer_id,
                listens,
                outside=report.outside,
                ports=ports,
                bootstraps=report.bootstraps,
            ),
            allowed_peers=len(member.manifest.rules.allowed_peers),
        )

    async def _fresh_report(self, within_s: float) -> _NetworkReport:
        """Return the last report if it is recent and isolation has not changed; otherwise ask."""
        now, last = trio.current_time(), self._report
        is_isolated = not self._member.host.connected_peers()
        if last and now - last.at < within_s and last.is_isolated == is_isolated:
            return last
        outside, bootstraps = await self._ask_around(tcp_ports(self._member.host.listen_addrs()))
        self._report = _NetworkReport(
            at=now, is_isolated=is_isolated, outside=outside, bootstraps=bootstraps
        )
        return self._report

    async def _ask_around(
        self, ports: tuple[int, ...]
    ) -> tuple[list[ReachabilityReport], list[BootstrapSeen]]:
        """Ask some peers what they see of this one and try every bootstrap, concurrently."""
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
        latency_ms, error, remedy = None, "", ""
        if peer_id == host.peer_id:
            return
        full_s = self._member.discovery.full_s(peer_id)
        if full_s is not None:  # dialling it now would cost another peer its slot
            found.append(BootstrapSeen(address=address, latency_ms=None, full_backoff_s=full_s))
            return
        try:
            await host.dial(address, timeout=_DIAL_SECONDS)
            latency_ms = round(await host.ping(peer_id, timeout=_DIAL_SECONDS), 3)
        except DialError as failure:
            denial = failure.denial
            error, remedy = (denial.message, denial.remedy) if denial else (str(failure), "")
            if failure.is_closed_early:
                remedy = FULL_REMEDY
        except RequestError as failure:
            error = str(failure)
        seen = BootstrapSeen(address=address, latency_ms=latency_ms, error=error, remedy=remedy)
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
        manager = self._member.guard.conn_manager
        ago_s = math.inf if manager.full_at is None else trio.current_time() - manager.full_at
        if ago_s > _FULL_SECONDS:
            return None
        return FullSeen(
            slots=self._member.peer.settings.max_connections,
            disconnected=manager.counters.peers_dropped,
            refused=manager.counters.peers_refused,
            ago_s=round(ago_s, 1),
        )

    def _key(self) -> KeyFile | None:
        """Read the key file again: a user who changed it may think that the new key is in use."""
        settings = self._member.peer.settings
        if settings.swarm_key == "none":
            return None
        try:
            same = key_of_settings(settings) == self._member.peer.swarm_key
        except SwarmKeyError as error:
            return KeyFile(file=settings.swarm_key, problem=str(error))
        changed = f"{settings.swarm_key} has changed since this node started"
        file = str(Path(settings.swarm_key).absolute())  # for programs that run in another folder
        return KeyFile(file=file, problem="" if same else changed)

    def _seen(self, seen: ReachabilityReport, ports: tuple[int, ...]) -> OutsideSeen:
        return OutsideSeen(
            peer_id=seen.peer_id,
            # The address from Identify if the peer does not answer this protocol.
            observed=seen.observed or self._member.host.observed_address(seen.peer_id),
            dialled=seen.dialled,
            reached=any(port in ports for port in seen.open_ports),
            clock_ahead_ms=seen.clock_ahead_ms,
        )


def _transport(address: str) -> str:
    return address.rpartition("/p2p/")[0] or address


def _trainer_error(trainer: TrainerView) -> str:
    """Describe the last failure of the trainer and its next start; empty if there was none."""
    if not trainer.last_exit:
        return ""
    wait = trainer.next_start_s
    when = "" if wait is None else f"; next start in {wait:.0f} s"
    return f"{ending(trainer.last_exit)}: {trainer.last_error or 'no output'}{when}"
