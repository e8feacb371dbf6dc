"""`shoal_p2p.parts.Dependencies` of a peer on a simulated network.

    network = SimulatedNetwork(random.Random(seed))
    node = Node(…, parts=simulated_parts(network, rng=…, wall_ms=…, worker=…), socket=NoSocket)

Left real: every rule of the node, its SQL, its files and its signatures.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from shoal_lab.simulation.gossip import SimulatedGossip
from shoal_lab.simulation.host import SimulatedHost
from shoal_lab.simulation.network import SimulatedNetwork
from shoal_p2p.gossip.interface import Gossip, PeerScorer
from shoal_p2p.gossip.sequence_numbers import SequenceNumbers
from shoal_p2p.gossip.settings import GossipSettings
from shoal_p2p.ipc.inspector import InspectorService
from shoal_p2p.net.host import HostSettings
from shoal_p2p.net.identity import Identity
from shoal_p2p.net.relay_server import RelayLimits, RelayServer
from shoal_p2p.parts import Dependencies, MapsPort, Network, Punches, Relays, Worker
from shoal_p2p.peers.address_policy import AddressPolicy
from shoal_p2p.peers.port_mapping import MappingState
from shoal_p2p.peers.relay_client import RelayUse
from shoal_p2p.store.store import Store, StoreCore
from shoal_tasks.spec import FamilySpec
from shoal_wire.types import PeerId

if TYPE_CHECKING:
    from trio_typing import TaskStatus

T = TypeVar("T")


class SimulatedEnd:
    """One peer's end of the simulated network."""

    def __init__(
        self,
        network: SimulatedNetwork,
        identity: Identity,
        settings: HostSettings,
        *,
        rng: random.Random,
        first_sequence: int,
        make_host: Callable[..., SimulatedHost] = SimulatedHost,
    ) -> None:
        self.host = make_host(
            network,
            identity,
            settings.listen[0],
            max_connections=settings.swarm.max_connections,
        )
        self._rng = rng
        self._first_sequence = first_sequence

    def gossip(
        self, watch: PeerScorer, settings: GossipSettings, numbers: SequenceNumbers
    ) -> Gossip:
        """Return gossip over the host."""
        return SimulatedGossip(
            self.host,
            self._rng,
            scorer=watch,
            settings=settings,
            first_sequence=self._first_sequence,
        )

    def relays(self, use: RelayUse, *, preferred: tuple[PeerId, ...]) -> Relays:
        """Return none: every peer can be dialled here."""
        return NoRelays()

    def punches(self, address_policy: AddressPolicy) -> Punches:
        """Return none: no peer is behind a router here."""
        return NoPunches()

    def port_mapping(self, *, wanted: bool, on_reached: Callable[[], None]) -> MapsPort:
        """Return none."""
        return NoMapping()

    def relay(self, limits: RelayLimits) -> RelayServer:
        """Refuse."""
        raise NotImplementedError("no relays on a simulated network")


class Idle:
    """Runs, and does nothing."""

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        task_status.started()
        await trio.sleep_forever()


class NoRelays(Idle):
    """No relay is needed."""

    @property
    def relays(self) -> tuple[PeerId, ...]:
        """None."""
        return ()

    def look_again(self) -> None:
        """Do nothing."""


class NoMapping(Idle):
    """There is no router here."""

    state = MappingState.NEEDLESS
    place = ""
    error = ""


class NoPunches(Idle):
    """No connection goes through a relay."""

    @property
    def counts(self) -> tuple[int, int]:
        """None."""
        return 0, 0

    @property
    def is_symmetric_nat(self) -> bool:
        """No."""
        return False


class NoSocket(Idle):
    """No client connects: the simulation calls the service itself."""

    def __init__(self, path: Path, service: InspectorService) -> None:
        """Take the arguments of `IpcServer`."""


async def at_once(
    sync_fn: Callable[..., T], *args: Any, limiter: trio.CapacityLimiter | None = None
) -> T:
    """Run blocking calls in the loop itself: virtual time would not wait for a thread."""
    await trio.lowlevel.checkpoint()
    return sync_fn(*args)


class UnflushedStore(Store):
    """The real store without flushing: a simulation has no power failures."""

    async def _submit(self, call: Callable[[StoreCore], T], *, durable: bool = False) -> T:
        return await super()._submit(call, durable=False)


def simulated_parts(
    network: SimulatedNetwork,
    *,
    worker: Callable[[Sequence[FamilySpec], float], Worker],
    wall_ms: Callable[[], int],
    rng: random.Random,
) -> Dependencies:
    """Return the parts of one run of one peer on `network`."""

    def end(identity: Identity, settings: HostSettings) -> Network:
        return SimulatedEnd(network, identity, settings, rng=rng, first_sequence=wall_ms())

    return Dependencies(
        network=end,
        worker=worker,
        store=UnflushedStore,
        in_thread=at_once,
        wall_ms=wall_ms,
        rng=rng,
    )
