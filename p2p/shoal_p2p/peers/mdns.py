"""Finding peers of the same swarm on the local network by multicast DNS (zeroconf).

zeroconf has its own threads. Found peers reach Trio through a bounded channel; when it is full, new
ones are dropped (mDNS repeats itself). A machine without multicast is normal: the node logs one
line and continues.

The service is ``_shoal._tcp.local.``; its TXT record holds ``id`` (peer id), ``swarm`` (first 16
hex digits of the manifest's digest, empty if not known yet) and ``a0``, ``a1``… (addresses).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import trio
import zeroconf
from zeroconf.asyncio import AsyncServiceInfo

from shoal_base.bounded import FEW
from shoal_base.waits import AT_ONCE_S
from shoal_p2p.net.address import dialable, host_and_port, parse_peer_id
from shoal_wire.limits import MAX_ADDRS_PER_PEER
from shoal_wire.peers import PeerAddresses
from shoal_wire.types import PeerId

if TYPE_CHECKING:
    from trio_typing import TaskStatus

logger = logging.getLogger(__name__)

SERVICE_TYPE = "_shoal._tcp.local."
SWARM_CHARS = 16
_LOOKUP_MS = int(1000 * AT_ONCE_S)
_MAX_LOOKUPS = 16
"""Greatest number of concurrent look-ups."""


class Mdns:
    """Announces this node and reports others. Start with ``await nursery.start(mdns.run)``."""

    def __init__(
        self,
        *,
        peer_id: PeerId,
        addresses: tuple[str, ...],
        on_found: Callable[[PeerAddresses], None],
        swarm: str = "",
        interfaces: tuple[str, ...] = (),
    ) -> None:
        """`addresses` are transport addresses; `swarm` is the hex digest of the manifest.

        A node that does not know its swarm yet finds the nodes of all swarms, and they find it.
        `interfaces` are local IP addresses; empty means all of the machine's.
        """
        self._peer_id = peer_id
        self._addresses = addresses[:MAX_ADDRS_PER_PEER]
        self._on_found = on_found
        self._swarm = swarm[:SWARM_CHARS]
        self._interfaces = interfaces
        self.running = False
        """True while announced."""

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Announce and browse until cancelled; returns if the machine cannot multicast.

        Started at once; being announced takes zeroconf two seconds more (see `running`).
        """
        task_status.started()
        sender, finds = trio.open_memory_channel[PeerAddresses](FEW)
        token = trio.lowlevel.current_trio_token()

        def report(peer: PeerAddresses) -> None:
            try:
                token.run_sync_soon(_offer, sender, peer)
            except trio.RunFinishedError:
                logger.debug("found %s after shutdown", peer.peer_id)

        try:
            session = await trio.to_thread.run_sync(partial(self._open, report))
        except (OSError, zeroconf.Error, RuntimeError) as error:
            logger.warning("no peer discovery on the local network: %s", error or repr(error))
            return
        self.running = True
        try:
            async for peer in finds:
                self._on_found(peer)
        finally:
            self.running = False
            with trio.CancelScope(shield=True):  # saying goodbye takes a quarter of a second
                await trio.to_thread.run_sync(session.close)

    def _open(self, report: Callable[[PeerAddresses], None]) -> zeroconf.Zeroconf:
        """Blocks up to some seconds: zeroconf probes for a name conflict."""
        session = zeroconf.Zeroconf(
            interfaces=list(self._interfaces) or zeroconf.InterfaceChoice.All,
            ip_version=zeroconf.IPVersion.V4Only,
        )
        try:
            session.register_service(self._service(), allow_name_change=True)
            listener = _Browser(partial(self._accept, report))
            zeroconf.ServiceBrowser(session, SERVICE_TYPE, listener)
        except BaseException:
            session.close()
            raise
        return session

    def _service(self) -> zeroconf.ServiceInfo:
        hosts = [host_and_port(address) for address in self._addresses]
        return zeroconf.ServiceInfo(
            SERVICE_TYPE,
            # DNS labels end at 63 bytes; the tail of a peer id is the part that differs.
            f"{self._peer_id[-32:]}.{SERVICE_TYPE}",
            port=hosts[0][1] if hosts else 0,
            server=f"{self._peer_id[-32:]}.local.",
            parsed_addresses=[host for host, _ in hosts if ":" not in host and host[0].isdigit()],
            properties=encode_txt(self._peer_id, self._addresses, self._swarm),
        )

    def _accept(
        self, report: Callable[[PeerAddresses], None], txt: Mapping[bytes, bytes | None]
    ) -> None:
        peer, swarm = decode_txt(txt)
        if peer is None or peer.peer_id == self._peer_id:
            return
        if swarm and self._swarm and swarm != self._swarm:
            return
        report(peer)


class _Browser(zeroconf.ServiceListener):
    """Runs in zeroconf's browser thread, and never blocks it: names are handled one after another.

    A proper announcement contains the whole record. If only the name came, the record is looked up,
    a few at a time; beyond those, the owner's next announcement is an update.
    """

    def __init__(self, accept: Callable[[Mapping[bytes, bytes | None]], None]) -> None:
        self._accept = accept
        self._lookups = threading.Semaphore(_MAX_LOOKUPS)

    def add_service(self, zc: zeroconf.Zeroconf, type_: str, name: str) -> None:
        """Look up a service that appeared."""
        try:
            info = AsyncServiceInfo(type_, name)
            if info.load_from_cache(zc):
                self._found(info)
            elif zc.loop is not None and self._lookups.acquire(blocking=False):
                lookup = asyncio.run_coroutine_threadsafe(
                    info.async_request(zc, _LOOKUP_MS), zc.loop
                )
                lookup.add_done_callback(partial(self._answered, info))
        except Exception as error:  # noqa: BLE001 - an unknown peer's name must not end the thread
            logger.debug("mDNS name %s ignored: %r", name, error)

    def _answered(self, info: AsyncServiceInfo, lookup: concurrent.futures.Future[bool]) -> None:
        self._lookups.release()
        if not lookup.cancelled() and lookup.exception() is None and lookup.result():
            self._found(info)

    def _found(self, info: AsyncServiceInfo) -> None:
        try:
            self._accept(info.properties)
        except Exception as error:  # noqa: BLE001 - an unknown peer's record must not end the thread
            logger.debug("mDNS record %s ignored: %r", info.name, error)

    def update_service(self, zc: zeroconf.Zeroconf, type_: str, name: str) -> None:
        """Look up a service that changed."""
        self.add_service(zc, type_, name)

    def remove_service(self, zc: zeroconf.Zeroconf, type_: str, name: str) -> None:
        """Nothing: connections end by themselves."""


def _offer(sender: trio.MemorySendChannel[PeerAddresses], peer: PeerAddresses) -> None:
    try:
        sender.send_nowait(peer)
    except (trio.WouldBlock, trio.BrokenResourceError):
        logger.debug("mDNS find of %s dropped", peer.peer_id)


def encode_txt(peer_id: PeerId, addresses: Iterable[str], swarm: str) -> dict[str, str]:
    """Return the TXT record of a node."""
    found = {"id": str(peer_id), "swarm": swarm}
    return found | {f"a{i}": a for i, a in enumerate(addresses) if len(a) <= 200}


def decode_txt(txt: Mapping[bytes, bytes | None]) -> tuple[PeerAddresses | None, str]:
    """Return the peer in a TXT record, None if there is none, and its swarm prefix."""
    fields = {
        key.decode("ascii", "replace"): value.decode("ascii", "replace")
        for key, value in txt.items()
        if value is not None
    }
    try:
        peer_id = parse_peer_id(fields.get("id", ""))
    except ValueError:
        return None, ""
    addresses = dialable(fields.get(f"a{index}", "") for index in range(MAX_ADDRS_PER_PEER))
    swarm = fields.get("swarm", "")[:SWARM_CHARS]
    return PeerAddresses(peer_id=peer_id, addresses=addresses), swarm
