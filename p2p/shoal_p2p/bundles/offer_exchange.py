"""Exchanges offers with peers by `/shoal/tasks/1`: asks one peer after another, and answers.

    own families ─ sign ─▶ answers ─▶ peers
    a peer, every few seconds ─▶ OfferBook ─▶ on_offered

A node hears only what it asks for, so a flood of offers costs it no more than one answer each time.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import trio

from shoal_base.bounded import BoundedDict
from shoal_base.visible import visible, visible_name
from shoal_p2p.bundles.client import NoBundleError, TaskClient
from shoal_p2p.bundles.offer_book import OfferBook, OfferedFamily, check_offer
from shoal_p2p.fair.buckets import Rate, TokenBucket
from shoal_p2p.net.interface import Host
from shoal_tasks.bundle import can_travel
from shoal_tasks.spec import FamilySpec
from shoal_tasks.swarm import families_of
from shoal_wire.errors import LocalError, RemoteError
from shoal_wire.limits import MAX_OFFERS
from shoal_wire.manifest import Manifest
from shoal_wire.offers import OFFER_LIFE_MS, TaskOffer, open_offer, seal_offer
from shoal_wire.task_messages import Offers, OffersQuery, Training
from shoal_wire.types import Digest, PeerId

if TYPE_CHECKING:
    from trio_typing import TaskStatus

log = logging.getLogger(__name__)

_ASK_EVERY_S: Final = 10.0
"""Mean time between two questions, each to one peer."""
_RENEW_MS: Final = OFFER_LIFE_MS // 3
_LINES: Final = Rate(burst=4, per_second=1 / 600)
"""Log lines about new offers: a member may offer many."""
_CLAIM_S: Final = 600.0
"""Time for which a peer's word on what it trains on counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Earnings:
    """Peers' own word about their training on one family."""

    num_nodes: int = 0
    reward: float | None = None
    """Mean over networks, each the mean of its peers; None if no peer trains on it."""


class OfferExchange:
    """A node's offers, and those of its peers."""

    def __init__(
        self,
        *,
        host: Host,
        client: TaskClient,
        book: OfferBook,
        manifest: Manifest,
        wall_ms: Callable[[], int],
        rng: random.Random,
        training: Callable[[], Sequence[Training]] = tuple,
        on_offered: Callable[[OfferedFamily], None] = lambda _family: None,
    ) -> None:
        """`training` returns what this node earns with the families that it added; `on_offered` is
        called with each new offer."""
        self._host = host
        self._client = client
        self._manifest = manifest
        self._wall_ms = wall_ms
        self._rng = rng
        self._training = training
        self._on_offered = on_offered
        self._lines = TokenBucket(_LINES, trio.current_time())
        self._book = book
        self._own: dict[Digest, tuple[FamilySpec, TaskOffer]] = {}
        self._asked_at: BoundedDict[PeerId, float] = BoundedDict()
        self._claims: BoundedDict[PeerId, tuple[float, tuple[Training, ...]]] = BoundedDict()

    def offer(self, families: Sequence[FamilySpec]) -> None:
        """Offer these families from now on, as far as they are shared, and no others."""
        wanted = {spec.digest: spec for spec in families if spec.share and can_travel(spec)}
        for digest in self._own.keys() - wanted.keys():
            del self._own[digest]
        for digest in wanted.keys() - self._own.keys():
            self._sign(wanted[digest])

    def _sign(self, spec: FamilySpec) -> None:
        identity = self._host.identity
        (family,) = families_of([spec])
        try:
            envelope = seal_offer(
                replace(family, weight=1.0),
                swarm_digest=self._manifest.digest,
                created_ms=self._wall_ms(),
                public_key=identity.public_key_bytes,
                sign=identity.sign,
            )
        except LocalError as error:
            log.warning("task %s is not offered: %s", visible_name(spec.name), error)
            return
        self._own[spec.digest] = spec, open_offer(envelope)

    def earnings(self, family: Digest) -> Earnings:
        """Return what connected peers say about their training on a family."""
        since = trio.current_time() - _CLAIM_S
        by_network: dict[str, list[float]] = {}
        for peer_id, (at, claims) in self._claims.items():
            reward = next((one.reward for one in claims if one.family == family), None)
            if reward is not None and at >= since and self._host.is_connected(peer_id):
                by_network.setdefault(self._host.source_of(peer_id), []).append(reward)
        if not by_network:
            return Earnings()
        means = [sum(some) / len(some) for some in by_network.values()]
        return Earnings(
            num_nodes=sum(map(len, by_network.values())), reward=sum(means) / len(means)
        )

    def answer(self, query: OffersQuery) -> Offers:
        """Return the offers that an asker lacks, this node's own first."""
        if query.swarm_digest != self._manifest.digest:
            return Offers()
        known = frozenset(query.known)
        own = [offer for _, offer in self._own.values() if offer.offer_id not in known]
        others = self._book.sample(known, self._rng, max(0, MAX_OFFERS - len(own)))
        return Offers(
            envelopes=tuple(offer.envelope for offer in [*own, *others][:MAX_OFFERS]),
            training=tuple(self._training())[:MAX_OFFERS],
        )

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Ask one peer after another until cancelled."""
        task_status.started()
        while True:
            await trio.sleep(_ASK_EVERY_S * self._rng.uniform(0.5, 1.5))
            self._renew()
            peer_id = self._next_peer()
            if peer_id is not None:
                self._asked_at[peer_id] = trio.current_time()
                await self.ask(peer_id)

    def _renew(self) -> None:
        now_ms = self._wall_ms()
        self._book.expire(now_ms)
        for spec, offer in list(self._own.values()):
            if now_ms - offer.created_ms > _RENEW_MS:
                self._sign(spec)

    def _next_peer(self) -> PeerId | None:
        """Return the connected peer that was not asked for the longest time."""
        peers = sorted(self._host.connected_peers())
        self._rng.shuffle(peers)
        return min(peers, key=lambda one: self._asked_at.get(one, 0.0), default=None)

    async def ask(self, peer_id: PeerId) -> None:
        """Ask one peer, and hold what is new."""
        query = OffersQuery(swarm_digest=self._manifest.digest, known=self._book.ids)
        try:
            answer = await self._client.offers(peer_id, query)
        except NoBundleError:
            return  # a bootstrap, or a peer that is gone
        self._claims.put(peer_id, (trio.current_time(), answer.training))
        for envelope in answer.envelopes:
            try:
                self._take(open_offer(envelope), peer_id)
            except RemoteError as error:
                self._client.offend(peer_id, str(error))
                return

    def _take(self, offer: TaskOffer, peer_id: PeerId) -> None:
        if offer.signer == self._host.peer_id or offer.offer_id in self._book:
            return
        checked = check_offer(offer, self._manifest, self._wall_ms())
        if checked is None:
            return
        spec, before = checked.spec, self._book.signers(checked.spec.digest)
        if not self._book.add(checked, network=self._host.source_of(peer_id)):
            return
        if spec.digest not in self._own and offer.signer not in before:
            if not before and self._lines.try_take(1.0, trio.current_time()):
                title = visible(str(spec.config.get("title", "")))
                name = visible_name(spec.name) + (f" ({title})" if title else "")
                log.info("%s offers the task %s: shoal tasks --swarm", offer.signer, name)
            self._on_offered(OfferedFamily(spec=spec, signers=(offer.signer,)))
