"""The offers that a node holds, bounded, and shared fairly by network and signer.

    envelope ─ open_offer ─▶ fault_of ─▶ OfferBook ─▶ answers to peers, families for the user

An offer is charged to the network of the peer that delivered it, as a forwarded message is: however
many identities a network invents, it gets its share of the book, and of each answer.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from shoal_p2p.fair.quota import HierarchicalQuota, QuotaEntry
from shoal_tasks.bundle import can_travel
from shoal_tasks.errors import FamilyError
from shoal_tasks.spec import FamilySpec
from shoal_tasks.swarm import spec_of
from shoal_wire.limits import MAX_KNOWN_OFFERS, MAX_OFFERS
from shoal_wire.manifest import Manifest
from shoal_wire.offers import OFFER_LIFE_MS, TaskOffer
from shoal_wire.types import Digest, PeerId

MAX_HELD: Final = MAX_KNOWN_OFFERS
"""Most offers of other nodes: 2 MiB, and as many as a query can name."""
MAX_PER_SIGNER: Final = 8

_TRIES: Final = 4
"""Draws for each offer of an answer: some draw an offer that the asker has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedFamily:
    """A family that members add to the swarm."""

    spec: FamilySpec
    signers: tuple[PeerId, ...]
    """The members that offer it, in order of their ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedOffer:
    """An offer that may be held and passed on."""

    offer: TaskOffer
    spec: FamilySpec


def check_offer(offer: TaskOffer, manifest: Manifest, now_ms: int) -> CheckedOffer | None:
    """Return the offer with its family if it can be used in this swarm now; otherwise None."""
    age_ms = now_ms - offer.created_ms
    is_timely = -1000 * manifest.rules.max_future_seconds <= age_ms <= OFFER_LIFE_MS
    if offer.swarm_digest != manifest.digest or not is_timely:
        return None
    try:
        spec = spec_of(offer.family)
    except FamilyError:
        return None  # perhaps of a newer version
    if not can_travel(spec) or spec.canonical != offer.family.config_json:
        return None
    if any(one.name == spec.name for one in manifest.families):
        return None
    return CheckedOffer(offer=offer, spec=spec)


class OfferBook:
    """Offers of other nodes, by signer and family; the newest of each."""

    def __init__(self) -> None:
        self._shares: HierarchicalQuota[CheckedOffer] = HierarchicalQuota()
        self._entries: dict[tuple[PeerId, Digest], QuotaEntry[CheckedOffer]] = {}
        self._ids: dict[bytes, tuple[PeerId, Digest]] = {}
        self._num_added = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, offer_id: object) -> bool:
        return offer_id in self._ids

    @property
    def ids(self) -> tuple[bytes, ...]:
        """The ids of all offers that are held."""
        return tuple(self._ids)

    def signers(self, family: Digest) -> frozenset[PeerId]:
        """Return the members that offer a family."""
        return frozenset(signer for signer, digest in self._entries if digest == family)

    def add(self, checked: CheckedOffer, *, network: str) -> bool:
        """Hold an offer that a peer of this network delivered; return whether it is held."""
        offer = checked.offer
        key = offer.signer, checked.spec.digest
        held = self._entries.get(key)
        if held is not None and held.item.offer.created_ms >= offer.created_ms:
            return False
        share_key = (network, offer.signer)
        if held is not None:
            self._drop(key)
        elif self._shares.count(share_key) >= MAX_PER_SIGNER:
            return False
        if len(self._entries) >= MAX_HELD:
            evicted = self._shares.pick_eviction(share_key)
            if evicted is None:
                return False
            self._drop((evicted.item.offer.signer, evicted.item.spec.digest))
        self._num_added += 1
        entry = QuotaEntry(share_key=share_key, item=checked, since=float(self._num_added))
        self._shares.add(entry)
        self._entries[key] = entry
        self._ids[offer.offer_id] = key
        return True

    def expire(self, now_ms: int) -> None:
        """Drop the offers that hold no longer."""
        for key, entry in list(self._entries.items()):
            if now_ms - entry.item.offer.created_ms > OFFER_LIFE_MS:
                self._drop(key)

    def sample(self, known: Collection[bytes], rng: random.Random, limit: int) -> list[TaskOffer]:
        """Return offers that an asker lacks, at most `limit`, drawn fairly by network."""
        limit = min(limit, MAX_OFFERS)
        found: dict[bytes, TaskOffer] = {}
        for _ in range(_TRIES * limit):
            entry = self._shares.sample(rng) if len(found) < limit else None
            if entry is None:
                break
            offer = entry.item.offer
            if offer.offer_id not in known:
                found[offer.offer_id] = offer
        return list(found.values())

    def families(self) -> Iterator[OfferedFamily]:
        """Yield the families on offer, by name and digest. One digest under two names is two."""
        found: dict[tuple[str, Digest], list[CheckedOffer]] = {}
        for entry in self._entries.values():
            spec = entry.item.spec
            found.setdefault((spec.name, spec.digest), []).append(entry.item)
        for _, offers in sorted(found.items()):
            signers = sorted(one.offer.signer for one in offers)
            yield OfferedFamily(spec=offers[0].spec, signers=tuple(signers))

    def _drop(self, key: tuple[PeerId, Digest]) -> None:
        entry = self._entries.pop(key)
        self._shares.remove(entry)
        del self._ids[entry.item.offer.offer_id]
