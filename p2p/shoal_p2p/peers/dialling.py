"""Dials one peer at its addresses, each a moment after the last, within the budgets.

    address ─▶ given by the user? ─▶ its name is looked up ─▶ may an invitation name that? ─┐
            └─ heard of ────────────────────────────────────────────────────────────────────┤
    dialled, if nobody of shoal has answered there, only within the place's budget ◀────────┘

An invitation is a stranger's text, and a name points where its owner wants: so both are held to
what hearsay is held to, until a peer of shoal has answered at the place.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import trio

from shoal_p2p.net.host import DialError
from shoal_p2p.net.interface import Host
from shoal_p2p.peers.address_policy import AddressPolicy, AddressSource, own_homes
from shoal_p2p.peers.targets import DialTarget, DiscoverySettings

OnAnswer = Callable[[DialTarget, str, str], None]
"""Called with the target, the address it was known by, and the place that was dialled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DialResult:
    """The outcome of the dials of one peer; it is connected or not, whatever this says."""

    errors: list[DialError]
    wait_s: float | None
    """Seconds until one of its addresses may be dialled, where none may be yet."""


class Dialler:
    """Dials targets. One for each discovery."""

    def __init__(self, host: Host, hearsay: AddressPolicy, settings: DiscoverySettings) -> None:
        self._host = host
        self._hearsay = hearsay
        self._settings = settings

    async def dial(self, target: DialTarget, on_answer: OnAnswer) -> DialResult:
        """Dial a peer's addresses; the first success ends the race."""
        errors: list[DialError] = []
        waits: list[float] = []
        num_dialled = 0

        async def try_one(address: str, place: str, failed: trio.Event) -> None:
            try:
                was_connected = target.peer_id in self._host.connected_peers()
                timeout_s = self._settings.dial_timeout_s
                await self._host.dial(f"{place}/p2p/{target.peer_id}", timeout=timeout_s)
                if not was_connected:
                    on_answer(target, address, place)
                nursery.cancel_scope.cancel()
            except DialError as error:
                errors.append(error)
            except ValueError as error:
                errors.append(DialError(str(error)))
            finally:
                failed.set()

        async with trio.open_nursery() as nursery:
            async for address, place in self._places(target, errors):
                if (wait_s := self._wait_s(target, address, place)) > 0:
                    waits.append(wait_s)
                    continue
                num_dialled += 1
                failed = trio.Event()
                nursery.start_soon(try_one, address, place, failed)
                with trio.move_on_after(self._settings.next_address_s):
                    await failed.wait()
        return DialResult(errors=errors, wait_s=min(waits) if waits and not num_dialled else None)

    def _wait_s(self, target: DialTarget, address: str, place: str) -> float:
        """Take one dial of a place and return 0, or return the seconds to wait."""
        if target.is_proven(place):
            return 0.0
        if target.given:
            return self._hearsay.given_wait_s(place)
        return self._hearsay.wait_s(place, target.source_of(address))

    async def _places(
        self, target: DialTarget, errors: list[DialError]
    ) -> AsyncIterator[tuple[str, str]]:
        """Yield each address with every place that it stands for, each place once."""
        seen: set[str] = set()
        for address in target.addresses:
            places = await self._places_of(target, address, errors) if target.given else (address,)
            for place in places:
                if place not in seen:
                    seen.add(place)
                    yield address, place

    async def _places_of(
        self, target: DialTarget, address: str, errors: list[DialError]
    ) -> tuple[str, ...]:
        """Return the places of an address that the user or an invitation gave."""
        places: tuple[str, ...] = ()
        with trio.move_on_after(self._settings.dial_timeout_s):
            places = await self._host.resolve(address, target.peer_id)
        if not places:
            errors.append(DialError(f"{address}: the name has no address"))
        if f"{address}/p2p/{target.peer_id}" not in self._settings.invited:
            return places
        inviter = AddressSource(source="invitation", homes=own_homes())
        named = tuple(place for place in places if inviter.may_tell(place))
        if len(named) < len(places):
            errors.append(
                DialError(
                    f"{address} is in a private network that this machine is not in, where no "
                    "invitation leads (--bootstrap does)"
                )
            )
        return named
