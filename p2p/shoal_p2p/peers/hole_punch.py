"""A connection through a relay becomes a direct one, where the routers between let it.

    circuit that came in ─▶ the other's own addresses ─ answered ─▶ direct, the circuit is let go
                                     │ not
                                     ▼
                  agree on a moment (`net.dcutr`), both dial ─▶ the same, or again: 3 times,
                                                                    then not for ten minutes

What the other side says of its addresses is hearsay: only of networks it may tell of, and each
dial is taken from the same few that hearsay has (`shoal_p2p.peers.address_policy`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import trio

from shoal_base.bounded import BoundedDict
from shoal_base.waits import LOOK_S, POLL_S, REPLY_S, RETRY_S, SHORT_DEADLINE_S
from shoal_p2p.net.address import host_and_port, is_circuit
from shoal_p2p.net.connections import ConnectionInfo, Direction
from shoal_p2p.net.dcutr import DCUTR, MAX_ADDRESSES, PunchPlan, initiate, respond
from shoal_p2p.net.host import Libp2pHost
from shoal_p2p.net.interface import DIALS_AT_ONCE
from shoal_p2p.net.private_networks import private_network_of
from shoal_p2p.net.refusals import PunchFailedError
from shoal_p2p.net.streams import Stream, reset_stream
from shoal_p2p.peers.address_policy import AddressPolicy
from shoal_p2p.peers.outside import AGAIN_S, tcp_ports
from shoal_p2p.peers.punch_candidates import ObservedAddress, is_symmetric_nat, punch_candidates
from shoal_wire.types import PeerId

if TYPE_CHECKING:
    from trio_typing import TaskStatus

logger = logging.getLogger(__name__)

_PAUSES_S = (1.0, 3.0)
"""Pauses between two tries."""
TRIES = len(_PAUSES_S) + 1
"""Tries per circuit, as DCUtR's specification has it."""
_KNOCKS_S = (0.1, 0.3, 0.8)
"""Pauses between dials where a router refuses and does not just drop."""


class HolePunch:
    """Start with ``await nursery.start(punch.run)``, after the host."""

    def __init__(self, *, host: Libp2pHost, hearsay: AddressPolicy) -> None:
        self._host = host
        self._hearsay = hearsay
        self._come = trio.Event()
        """A peer has connected since the last look."""
        self._leading: set[PeerId] = set()
        self._following: set[PeerId] = set()
        self._rests_until: BoundedDict[PeerId, float] = BoundedDict()
        self._ended: BoundedDict[PeerId, bool] = BoundedDict()
        host.add_peer_callbacks(connected=lambda _peer_id: self._come.set())

    @property
    def counts(self) -> tuple[int, int]:
        """Relayed peers that became direct, and all with whom it was tried, the latest result."""
        return sum(self._ended.values()), len(self._ended)

    @property
    def is_symmetric_nat(self) -> bool:
        """True if the router is known to show each place outside another port."""
        return is_symmetric_nat(self._sightings())

    def _sightings(self) -> list[ObservedAddress]:
        return [
            ObservedAddress(
                local_port=c.local_port, observed=self._host.observed_address(c.peer_id)
            )
            for c in self._host.connections()
            if not is_circuit(c.address)
        ]

    def _doors(self) -> tuple[str, ...]:
        """Return the transport addresses at which this node may be knocked at, surest first."""
        own = [address.rpartition("/p2p/")[0] for address in self._host.interface_addrs()]
        public = [
            address for address in own if private_network_of(host_and_port(address)[0]) is None
        ]
        told = (*self._host.announced.configured, *self._host.announced.forwarded, *public)
        return tuple(dict.fromkeys((*told, *punch_candidates(self._sightings(), tcp_ports(own)))))

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Try each circuit that came in, until cancelled."""
        self._host.serve_streams(DCUTR, self.follow)
        task_status.started()
        async with trio.open_nursery() as nursery:
            while True:
                circuits = [
                    c
                    for c in self._host.connections()
                    if is_circuit(c.address) and c.direction is Direction.IN
                ]
                for peer_id in self._due(circuits):
                    self._leading.add(peer_id)
                    nursery.start_soon(self._lead, peer_id)
                if circuits:
                    await trio.sleep(RETRY_S)
                    continue
                # Also while nobody comes: a circuit may be what is left of two connections.
                with trio.move_on_after(LOOK_S):
                    await self._come.wait()
                self._come = trio.Event()

    def _due(self, circuits: Sequence[ConnectionInfo]) -> list[PeerId]:
        now = trio.current_time()
        due = [
            c.peer_id
            for c in circuits
            # A poll's time is enough for both to have told each other who they are.
            if c.opened_s >= RETRY_S
            and c.peer_id not in self._leading
            and self._rests_until.get(c.peer_id, 0.0) <= now
        ]
        return due[: DIALS_AT_ONCE - len(self._leading)]

    # Leading

    async def _lead(self, peer_id: PeerId) -> None:
        started = trio.current_time()
        self._rests_until[peer_id] = started + AGAIN_S
        try:
            for number in range(TRIES):
                if number:
                    await trio.sleep(_PAUSES_S[number - 1])
                if not self._is_relayed(peer_id) or await self._try(peer_id, number):
                    break
        finally:
            self._leading.discard(peer_id)
        if not self._is_relayed(peer_id):
            if not self._note_direct(peer_id, started):
                self._rests_until[peer_id] = trio.current_time() + LOOK_S
            return
        self._ended[peer_id] = False
        hint = ", this node's router shows each another port" * self.is_symmetric_nat
        said = "%s stays behind its relay: not reached directly in %d tries%s; next in %.0f min"
        logger.info(said, peer_id, TRIES, hint, AGAIN_S / 60)

    async def _try(self, peer_id: PeerId, number: int) -> bool:
        try:
            if not number and (known := self._host.peer_addresses(peer_id)):
                await self._knock_at(peer_id, known, as_client=True)
            if self._is_relayed(peer_id):
                agreed = await self._talk(peer_id)
                await trio.sleep(agreed.wait_s)
                await self._knock_at(peer_id, agreed.addresses, as_client=False)
        except Exception as error:  # noqa: BLE001 - the other side's bytes, silence or end
            logger.debug("no hole punched to %s: %r", peer_id, error)
        return not self._is_relayed(peer_id)

    async def _talk(self, peer_id: PeerId) -> PunchPlan:
        with trio.fail_after(REPLY_S):
            stream = await self._host.open_stream(peer_id, DCUTR)
            try:
                agreed = await initiate(stream, self._doors())
                await stream.close()  # a reset could overtake the last word
            except BaseException:
                await reset_stream(stream)
                raise
        return agreed

    # Following

    async def follow(self, peer_id: PeerId, stream: Stream) -> None:
        """Serve one stream of the protocol; what a peer's bytes raise resets it."""
        is_busy = peer_id in self._following or len(self._following) >= DIALS_AT_ONCE
        if is_busy or not self._is_relayed(peer_id):
            await reset_stream(stream)
            return
        self._following.add(peer_id)
        started = trio.current_time()
        try:
            with trio.fail_after(REPLY_S):
                agreed = await respond(stream, self._doors())
            await self._knock_at(peer_id, agreed.addresses, as_client=True)
        finally:
            self._following.discard(peer_id)
            await reset_stream(stream)
        self._ended[peer_id] = self._note_direct(peer_id, started)

    # Both

    async def _knock_at(
        self, peer_id: PeerId, addresses: Sequence[str], *, as_client: bool
    ) -> None:
        """Dial all that may be dialled, until one connection is direct or the time is over."""
        speaker = self._hearsay.speaker(peer_id)
        told = [a for a in addresses if not is_circuit(a) and speaker.may_tell(a)][:MAX_ADDRESSES]
        if not told:
            return
        with trio.move_on_after(SHORT_DEADLINE_S):
            async with trio.open_nursery() as nursery:
                for address in told:
                    nursery.start_soon(
                        partial(self._knock, address, peer_id, speaker.source, as_client=as_client)
                    )
                while self._is_relayed(peer_id):  # noqa: ASYNC110 - it comes in by any way
                    await trio.sleep(POLL_S)
                nursery.cancel_scope.cancel()

    async def _knock(self, address: str, peer_id: PeerId, source: str, *, as_client: bool) -> None:
        for pause_s in (*_KNOCKS_S, None):
            if not self._hearsay.may_dial(address, source):
                return
            try:
                await self._host.punch_dial(address, peer_id, as_client=as_client)
                return
            except PunchFailedError as error:
                logger.debug("knocked at %s of %s: %s", address, peer_id, error)
            if pause_s is not None:
                await trio.sleep(pause_s)

    def _is_relayed(self, peer_id: PeerId) -> bool:
        return is_circuit(self._host.remote_address(peer_id))

    def _note_direct(self, peer_id: PeerId, started: float) -> bool:
        """Take note of a direct connection; return whether there is one."""
        address = self._host.remote_address(peer_id)
        if not address or is_circuit(address):
            return False
        self._ended[peer_id] = True
        self._rests_until.pop(peer_id, None)
        took_s = trio.current_time() - started
        logger.info("%s is reached directly, at %s, after %.1f s", peer_id, address, took_s)
        return True
