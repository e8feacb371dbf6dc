"""Debug views that act on the network: `doctor` and `addresses` ask peers, `ping` asks one."""

from __future__ import annotations

import math
import random
import resource
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
import trio

from p2p.buffer.types import DropCause, InsertOutcome
from p2p.gossip.scorer import MeshSettings
from p2p.ipc.doctor import (
    FULL_DO,
    BootstrapSeen,
    Facts,
    FullSeen,
    KeySeen,
    OutsideSeen,
    TopicSeen,
    diagnose,
    learning_of,
)
from p2p.ipc.finding import State
from p2p.ipc.inspector import SCHEMA_VERSION, View, view
from p2p.ipc.reach_checks import MappingSeen, ReachSeen
from p2p.ipc.ways_in import ways_in
from p2p.ipc.which_peer import which_peer
from p2p.member import Member
from p2p.net.address import has_other_network, is_circuit, parse_peer_address
from p2p.net.host import DialError, RequestError
from p2p.net.swarm_key import SwarmKeyError, key_of_settings
from p2p.peers.outside import Outside, ask_outside, tcp_ports
from p2p.peers.port_mapping import MappingState
from p2p.peers.witnesses import witnesses
from p2p.trainer_child import ending
from shoal_wire.types import PeerId

_MAX_ASKED = 8
_PING_SECONDS = 5.0
_DIAL_SECONDS = 4.0
_FULL_SECONDS = 600.0
"""For so long it is told that there was no room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Around:
    at: float
    alone: bool
    outside: list[Outside]
    bootstraps: list[BootstrapSeen]


class NetViews:
    """The views of any peer, given its status view and whom a part of an id may name."""

    def __init__(
        self, member: Member, status: View, known_peers: Callable[[], Iterable[PeerId]]
    ) -> None:
        self._member = member
        self._status = status
        self._known_peers = known_peers
        self._rng = random.Random()
        self._around: _Around | None = None
        """What asking around brought last."""

    @view
    async def ping(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """One ping of `peer`, an id, its end or an address, connecting to it first if need be.

        `mistaken` says that `peer` names nobody, so that trying again is of no use.
        """
        text = str(options.get("peer", ""))
        answer: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "peer_id": None, "ms": None}
        answer["mistaken"] = False
        try:
            peer_id = await self._connected(text)
            answer["peer_id"] = peer_id
            answer["ms"] = round(await self._member.host.ping(peer_id, timeout=_PING_SECONDS), 3)
        except (DialError, RequestError, ValueError) as error:
            mistaken = isinstance(error, ValueError)
            return {**answer, "mistaken": mistaken, "error": str(error)}
        return {**answer, "error": ""}

    async def _connected(self, text: str) -> PeerId:
        if "/" in text:
            return await self._member.host.dial(text, timeout=_DIAL_SECONDS)
        peer_id = which_peer(text, self._known_peers())
        if peer_id == self._member.peer_id:
            raise ValueError(f"{peer_id} is this node itself")
        known = next((t for t in self._member.discovery.snapshot() if t.peer_id == peer_id), None)
        if known is not None and not self._member.host.is_connected(peer_id):
            await self._member.host.dial(f"{known.address}/p2p/{peer_id}", timeout=_DIAL_SECONDS)
        return peer_id

    @view
    async def doctor(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Ask peers how this node looks, and say what is wrong. Takes five seconds at most.

        Option: `within_s`, so old may be what peers said; a program that asks again and again
        spares them. Without it they are asked.
        """
        facts = await self._facts(float(options.get("within_s", 0.0)))
        findings = diagnose(facts)
        worst = max((f.state for f in findings), key=list(State).index)
        return {
            "schema_version": SCHEMA_VERSION,
            "peer_id": self._member.peer_id,
            "state": str(worst),
            "findings": [asdict(finding) for finding in findings],
            "facts": asdict(facts),
        }

    @view
    async def addresses(self, _options: Mapping[str, Any]) -> dict[str, Any]:
        """Where others find this peer and its swarm. Takes five seconds at most."""
        member = self._member
        listens = member.host.listen_addrs()
        ports = tcp_ports(listens)
        outside, bootstraps = await self._ask_around(ports)
        ways = ways_in(member.peer_id, listens, outside=outside, ports=ports, bootstraps=bootstraps)
        return {
            "schema_version": SCHEMA_VERSION,
            "peer_id": member.peer_id,
            "swarm": {"name": member.manifest.swarm_name, "digest": member.manifest.digest.hex()},
            "addresses": [asdict(way) for way in ways],
            "swarm_key": await member.peer.parts.in_thread(self._key_file),
            "allowed_peers": len(member.manifest.rules.allowed_peers),
        }

    async def _facts(self, within_s: float) -> Facts:
        member = self._member
        ports = tcp_ports(member.host.listen_addrs())
        connected = sorted(member.host.connected_peers())
        outside, bootstraps = await self._asked(connected, ports, within_s)
        status = await self._status({})
        buffer = status.get("buffer")
        trainer = status.get("trainer") or {}
        learning = trainer.get("learning")
        return Facts(
            uptime_s=status["uptime_s"],
            listens=tuple(_transport(address) for address in member.host.listen_addrs()),
            transports=self._transports(),
            peers=len(connected),
            relays=len(member.peer.relays.relays),
            is_meeting_point=status.get("role") == "bootstrap",
            other_network=has_other_network(),
            reach=self._reach(),
            full=self._full(),
            key=await member.peer.parts.in_thread(self._key),
            bootstraps=tuple(sorted(bootstraps, key=lambda seen: seen.address)),
            outside=tuple(self._seen(seen, ports) for seen in outside),
            topics=self._topics(),
            mesh_low=MeshSettings().degree_low,
            clock_limit_ms=1000 * member.manifest.rules.max_future_seconds,
            trainer=status["trainer"]["state"] if "trainer" in status else None,
            trainer_error=_last_words(status.get("trainer", {})),
            learning=learning_of(learning),
            groups_looked_at=_looked_at(learning) if self._wants_others() else None,
            one_network=status.get("one_network", ""),
            groups_received=status.get("groups_received"),
            buffered=(buffer["groups"], buffer["capacity_groups"]) if buffer else None,
            groups_too_old=_too_old(buffer["dropped"]) if buffer else 0,
            disk_free_bytes=status["disk"]["free_bytes"],
            disk_full=status["disk"]["full"],
            paused=str(status["trainer"].get("paused") or "") if "trainer" in status else "",
            files_open=psutil.Process().num_fds(),
            files_limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        )

    async def _asked(
        self, connected: Sequence[PeerId], ports: tuple[int, ...], within_s: float
    ) -> tuple[list[Outside], list[BootstrapSeen]]:
        """Ask around, unless that was done so lately and nobody was lost or found since."""
        now, last = trio.current_time(), self._around
        if last and now - last.at < within_s and last.alone == (not connected):
            return last.outside, last.bootstraps
        outside, bootstraps = await self._ask_around(ports)
        self._around = _Around(at=now, alone=not connected, outside=outside, bootstraps=bootstraps)
        return outside, bootstraps

    async def _ask_around(
        self, ports: tuple[int, ...]
    ) -> tuple[list[Outside], list[BootstrapSeen]]:
        """Ask some peers how this one looks, and try every bootstrap, all at once."""
        outside: list[Outside] = []
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
            found.append(BootstrapSeen(address=address, latency_ms=None, full_s=full_s))
            return
        try:
            await host.dial(address, timeout=_DIAL_SECONDS)
            latency_ms = round(await host.ping(peer_id, timeout=_DIAL_SECONDS), 3)
        except DialError as failure:
            bar = failure.bar
            error, mends = (bar.says, bar.do) if bar else (str(failure), "")
            if failure.is_cut_off:
                mends = FULL_DO
        except RequestError as failure:
            error = str(failure)
        seen = BootstrapSeen(address=address, latency_ms=latency_ms, error=error, mends=mends)
        found.append(seen)

    def _reach(self) -> ReachSeen:
        peer = self._member.peer
        mapping = peer.port_mapping
        return ReachSeen(
            mapping=None
            if mapping.state is MappingState.NEEDLESS
            else MappingSeen(state=mapping.state, place=mapping.place, error=mapping.error),
            punched=peer.punches.counts,
            relayed=sum(is_circuit(c.address) for c in peer.host.connections()),
            many_doors=peer.punches.has_many_doors,
            announced=peer.settings.announce,
        )

    def _full(self) -> FullSeen | None:
        room = self._member.guard.room
        ago_s = math.inf if room.full_at is None else trio.current_time() - room.full_at
        if ago_s > _FULL_SECONDS:
            return None
        return FullSeen(
            slots=self._member.peer.settings.max_connections,
            let_go=room.num_let_go,
            refused=room.num_refused,
            ago_s=round(ago_s, 1),
        )

    def _key(self) -> KeySeen | None:
        """Read the key's file again: who has changed it expects the change to be in force."""
        settings = self._member.peer.settings
        if settings.swarm_key == "none":
            return None
        try:
            same = key_of_settings(settings) == self._member.peer.swarm_key
        except SwarmKeyError as error:
            return KeySeen(file=settings.swarm_key, problem=str(error))
        changed = f"{settings.swarm_key} has another key than when this one started"
        return KeySeen(file=settings.swarm_key, problem="" if same else changed)

    def _key_file(self) -> dict[str, str] | None:
        """Where the key is, for programs that run in another folder."""
        key = self._key()
        if key is None:
            return None
        return {"file": str(Path(key.file).absolute()), "problem": key.problem}

    def _seen(self, seen: Outside, ports: tuple[int, ...]) -> OutsideSeen:
        return OutsideSeen(
            peer_id=seen.peer_id,
            # Identify's word where the peer does not answer this one's.
            observed=seen.observed or self._member.host.observed_address(seen.peer_id),
            dialled=seen.dialled,
            reached=any(port in ports for port in seen.open_ports),
            clock_ahead_ms=seen.clock_ahead_ms,
        )

    def _wants_others(self) -> bool:
        settings = self._member.peer.settings
        return settings.external > 0 and not settings.no_train

    def _topics(self) -> tuple[TopicSeen, ...]:
        gossip = self._member.gossip
        meshes = gossip.mesh()
        return tuple(
            TopicSeen(
                topic=topic,
                peers=len(gossip.topic_peers(topic)),
                mesh=len(meshes.get(topic, [])),
            )
            for topic in gossip.topics()
        )

    def _transports(self) -> tuple[tuple[str, int], ...]:
        host = self._member.host
        counts = Counter({_kind(_transport(address)): 0 for address in host.listen_addrs()})
        counts.update(_kind(connection.address) for connection in host.connections())
        return tuple(sorted(counts.items()))


def _looked_at(learning: object) -> int | None:
    """Groups of others that the trainer looked at lately, once it has played enough rounds."""
    if not isinstance(learning, dict) or learning.get("state") in (None, "early"):
        return None
    drawn = learning.get("drawn")
    return drawn if isinstance(drawn, int) else None


def _too_old(dropped: Mapping[str, int]) -> int:
    return dropped.get(InsertOutcome.TOO_OLD, 0) + dropped.get(DropCause.EXPIRED, 0)


def _transport(address: str) -> str:
    return address.rpartition("/p2p/")[0] or address


def _kind(transport: str) -> str:
    """Return what people call a transport: ``tcp over ip4``."""
    if "/p2p-circuit" in transport:
        return "relay"
    parts = transport.split("/")
    return f"{parts[3]} over {parts[1]}" if len(parts) > 3 else "unknown"


def _last_words(trainer: Mapping[str, Any]) -> str:
    """Say how the last trainer that failed ended, and when there is another; empty for none."""
    if not trainer.get("last_exit"):
        return ""
    said = trainer["last_error"] or "it said nothing"
    wait = trainer["next_start_s"]
    when = "" if wait is None else f"; next start in {wait:.0f} s"
    return f"{ending(trainer['last_exit'])}: {said}{when}"
