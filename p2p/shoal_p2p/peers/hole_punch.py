"""Replaces relayed connections by direct ones where the NATs allow it (DCUtR).

    inbound circuit ─▶ dial the peer's addresses ─ success ─▶ direct, the circuit is closed
                                     │ failure
                                     ▼
                  agree on a moment (`net.dcutr`), both dial ─▶ success, or again: 3 attempts,
                                                                then a pause of ten minutes

The other side's addresses are unverified: only those of networks that it may report are dialled,
within the limits for third-party addresses (`shoal_p2p.peers.address_policy`).
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
"""Pauses between two attempts, in seconds."""
TRIES = len(_PAUSES_S) + 1
"""Attempts for each circuit, as in the DCUtR specification."""
_DIAL_PAUSES_S = (0.1, 0.3, 0.8)
"""Pauses between dials if a NAT rejects packets instead of dropping them."""


class HolePunch:
    """Punches holes. Start with ``await nursery.start(punch.run)``, after the host."""

    def __init__(self, *, host: Libp2pHost, address_policy: AddressPolicy) -> None:
        self._host = host
        self._address_policy = address_policy
        self._peer_connected = trio.Event()
        """Set when a peer has connected since the last check."""
        self._initiating: set[PeerId] = set()
        self._responding: set[PeerId] = set()
        self._rests_until: BoundedDict[PeerId, float] = BoundedDict()
        self._ended: BoundedDict[PeerId, bool] = BoundedDict()
        host.add_peer_callbacks(connected=lambda _peer_id: self._peer_connected.set())

    @property
    def counts(self) -> tuple[int, int]:
        """Relayed peers that became direct, and all that were tried, by their latest result."""
        return sum(self._ended.values()), len(self._ended)

    @property
    def is_symmetric_nat(self) -> bool:
        """True if this node is known to be behind a symmetric NAT."""
        return is_symmetric_nat(self._observed_addresses())

    def _observed_addresses(self) -> list[ObservedAddress]:
        return [
            ObservedAddress(
                local_port=c.local_port, observed=self._host.observed_address(c.peer_id)
            )
            for c in self._host.connections()
            if not is_circuit(c.address)
        ]

    def _candidates(self) -> tuple[str, ...]:
        """Return the transport addresses at which this node may be dialled, the most likely
        first."""
        own = [address.rpartition("/p2p/")[0] for address in self._host.interface_addrs()]
        public = [
            address for address in own if private_network_of(host_and_port(address)[0]) is None
        ]
        own_external = (*self._host.announced.configured, *self._host.announced.forwarded, *public)
        return tuple(
            dict.fromkeys(
                (*own_external, *punch_candidates(self._observed_addresses(), tcp_ports(own)))
            )
        )

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Process inbound circuits until cancelled."""
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
                    self._initiating.add(peer_id)
                    nursery.start_soon(self._initiate, peer_id)
                if circuits:
                    await trio.sleep(RETRY_S)
                    continue
                # Also without new connections: a circuit may be what is left of two connections.
                with trio.move_on_after(LOOK_S):
                    await self._peer_connected.wait()
                self._peer_connected = trio.Event()

    def _due(self, circuits: Sequence[ConnectionInfo]) -> list[PeerId]:
        now = trio.current_time()
        due = [
            c.peer_id
            for c in circuits
            # After this delay both sides have usually finished identify.
            if c.opened_s >= RETRY_S
            and c.peer_id not in self._initiating
            and self._rests_until.get(c.peer_id, 0.0) <= now
        ]
        return due[: DIALS_AT_ONCE - len(self._initiating)]

    # Leading

    async def _initiate(self, peer_id: PeerId) -> None:
        started = trio.current_time()
        self._rests_until[peer_id] = started + AGAIN_S
        try:
            for number in range(TRIES):
                if number:
                    await trio.sleep(_PAUSES_S[number - 1])
                if not self._is_relayed(peer_id) or await self._try(peer_id, number):
                    break
        finally:
            self._initiating.discard(peer_id)
        if not self._is_relayed(peer_id):
            if not self._note_direct(peer_id, started):
                self._rests_until[peer_id] = trio.current_time() + LOOK_S
            return
        self._ended[peer_id] = False
        hint = ", this node's router shows each peer another port" * self.is_symmetric_nat
        message = "%s stays behind its relay: not reached directly in %d tries%s; next in %.0f min"
        logger.info(message, peer_id, TRIES, hint, AGAIN_S / 60)

    async def _try(self, peer_id: PeerId, number: int) -> bool:
        try:
            if not number and (known := self._host.peer_addresses(peer_id)):
                await self._punch_all(peer_id, known, as_client=True)
            if self._is_relayed(peer_id):
                agreed = await self._talk(peer_id)
                await trio.sleep(agreed.wait_s)
                await self._punch_all(peer_id, agreed.addresses, as_client=False)
        except Exception as error:  # noqa: BLE001 - the other side's bytes, silence or end
            logger.debug("no hole punched to %s: %r", peer_id, error)
        return not self._is_relayed(peer_id)

    async def _talk(self, peer_id: PeerId) -> PunchPlan:
        with trio.fail_after(REPLY_S):
            stream = await self._host.open_stream(peer_id, DCUTR)
            try:
                agreed = await initiate(stream, self._candidates())
                await stream.close()  # a reset could overtake the last word
            except BaseException:
                await reset_stream(stream)
                raise
        return agreed

    # Following

    async def follow(self, peer_id: PeerId, stream: Stream) -> None:
        """Respond on one DCUtR stream. Malformed messages reset it."""
        is_busy = peer_id in self._responding or len(self._responding) >= DIALS_AT_ONCE
        if is_busy or not self._is_relayed(peer_id):
            await reset_stream(stream)
            return
        self._responding.add(peer_id)
        started = trio.current_time()
        try:
            with trio.fail_after(REPLY_S):
                agreed = await respond(stream, self._candidates())
            await self._punch_all(peer_id, agreed.addresses, as_client=True)
        finally:
            self._responding.discard(peer_id)
            await reset_stream(stream)
        self._ended[peer_id] = self._note_direct(peer_id, started)

    # Both

    async def _punch_all(
        self, peer_id: PeerId, addresses: Sequence[str], *, as_client: bool
    ) -> None:
        """Dial all allowed addresses until a direct connection exists or the time is over."""
        speaker = self._address_policy.speaker(peer_id)
        allowed = [a for a in addresses if not is_circuit(a) and speaker.is_allowed(a)][
            :MAX_ADDRESSES
        ]
        if not allowed:
            return
        with trio.move_on_after(SHORT_DEADLINE_S):
            async with trio.open_nursery() as nursery:
                for address in allowed:
                    nursery.start_soon(
                        partial(self._punch, address, peer_id, speaker.source, as_client=as_client)
                    )
                while self._is_relayed(peer_id):  # noqa: ASYNC110 - it comes in by any way
                    await trio.sleep(POLL_S)
                nursery.cancel_scope.cancel()

    async def _punch(self, address: str, peer_id: PeerId, source: str, *, as_client: bool) -> None:
        for pause_s in (*_DIAL_PAUSES_S, None):
            if not self._address_policy.may_dial(address, source):
                return
            try:
                await self._host.punch_dial(address, peer_id, as_client=as_client)
                return
            except PunchFailedError as error:
                logger.debug("punch dial to %s of %s: %s", address, peer_id, error)
            if pause_s is not None:
                await trio.sleep(pause_s)

    def _is_relayed(self, peer_id: PeerId) -> bool:
        return is_circuit(self._host.remote_address(peer_id))

    def _note_direct(self, peer_id: PeerId, started: float) -> bool:
        """Record a direct connection, and return whether there is one."""
        address = self._host.remote_address(peer_id)
        if not address or is_circuit(address):
            return False
        self._ended[peer_id] = True
        self._rests_until.pop(peer_id, None)
        elapsed_s = trio.current_time() - started
        logger.info("%s is reached directly, at %s, after %.1f s", peer_id, address, elapsed_s)
        return True
