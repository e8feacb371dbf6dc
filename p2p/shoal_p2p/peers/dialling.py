"""Dials one peer at its addresses, one after another with a short delay, within the limits.

    address ─▶ configured? ─▶ its name is resolved ─▶ may an invitation name the result? ─┐
            └─ third-party ──────────────────────────────────────────────────────────────┤
    dialled, within the limit for that address until a shoal peer has answered there ◀────┘

Invitations are untrusted, and a name's owner controls where it points. So both are limited like
third-party addresses until a shoal peer has answered at the address.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import trio

from shoal_p2p.net.host import DialError
from shoal_p2p.net.interface import Host
from shoal_p2p.peers.address_policy import AddressPolicy, AddressSource, own_private_networks
from shoal_p2p.peers.targets import DialTarget, DiscoverySettings

OnAnswer = Callable[[DialTarget, str, str], None]
"""Called with the target, the address as known, and the resolved address that was dialled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DialResult:
    """The outcome of dialling one peer. Whether it is connected must be checked separately."""

    errors: list[DialError]
    wait_s: float | None
    """Seconds until one of its addresses may be dialled, if none may be yet."""


class Dialler:
    """Dials targets for one discovery."""

    def __init__(
        self, host: Host, address_policy: AddressPolicy, settings: DiscoverySettings
    ) -> None:
        self._host = host
        self._address_policy = address_policy
        self._settings = settings

    async def dial(self, target: DialTarget, on_answer: OnAnswer) -> DialResult:
        """Dial a peer's addresses until one succeeds."""
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
        """Charge one dial and return 0, or return the seconds to wait."""
        if target.is_proven(place):
            return 0.0
        if target.given:
            return self._address_policy.configured_wait_s(place)
        return self._address_policy.wait_s(place, target.source_of(address))

    async def _places(
        self, target: DialTarget, errors: list[DialError]
    ) -> AsyncIterator[tuple[str, str]]:
        """Yield each address with all its distinct resolved addresses."""
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
        """Return the resolved addresses of one from the user or an invitation."""
        places: tuple[str, ...] = ()
        with trio.move_on_after(self._settings.dial_timeout_s):
            places = await self._host.resolve(address, target.peer_id)
        if not places:
            errors.append(DialError(f"{address}: the name has no address"))
        if f"{address}/p2p/{target.peer_id}" not in self._settings.invited:
            return places
        inviter = AddressSource(source="invitation", networks=own_private_networks())
        named = tuple(place for place in places if inviter.is_allowed(place))
        if len(named) < len(places):
            errors.append(
                DialError(
                    f"{address} is in a private network that this machine is not in, where no "
                    "invitation leads (--bootstrap does)"
                )
            )
        return named
