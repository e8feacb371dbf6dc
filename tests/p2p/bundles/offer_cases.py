"""Offers of tasks: signed by members, exchanged between nodes, and hostile ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from shoal_lab.simulation.parts import at_once
from shoal_p2p.bundles.client import TaskClient
from shoal_p2p.bundles.offer_book import CheckedOffer, OfferBook, OfferedFamily, check_offer
from shoal_p2p.bundles.offer_exchange import OfferExchange
from shoal_p2p.bundles.server import SharedTasks, TaskServer
from shoal_p2p.net.identity import Identity, identity_from_seed
from shoal_p2p.net.request import RequestError, RequestFailure
from shoal_tasks.families import EASY
from shoal_tasks.spec import FamilySpec
from shoal_tasks.swarm import families_of
from shoal_wire.limits import TASKS_PROTOCOL
from shoal_wire.manifest import Manifest, TaskFamily, make_manifest
from shoal_wire.offers import open_offer, seal_offer
from shoal_wire.task_messages import Training
from shoal_wire.types import Digest, PeerId
from shoal_wire.verdict import Verdict
from tests.support.doubles.host import FakeHost

NOW_MS = 1_800_000_000_000
SWARM = make_manifest("offers", families_of(EASY))


def spec_of_rows(name: str = "sums", number: int = 0, **config: object) -> FamilySpec:
    """Return a family of rows whose digest depends on `number`."""
    fields = {"sha256": f"{number:064x}", "rows": 9, "held_out": 3, "split": "question"}
    return FamilySpec(
        name=name,
        generator="rows",
        config={**fields, **config},  # type: ignore[dict-item]
        verifier="exact",
        verifier_version="1",
        share=True,
    )


def signer(number: int) -> Identity:
    """Return one of many members."""
    return identity_from_seed(number.to_bytes(32, "big"))


def sealed(
    spec: FamilySpec,
    by: Identity,
    *,
    created_ms: int = NOW_MS,
    swarm: Digest = SWARM.digest,
    change: Callable[[TaskFamily], TaskFamily] = lambda family: family,
) -> bytes:
    """Return the envelope of an offer."""
    (family,) = families_of([spec])
    return seal_offer(
        change(family),
        swarm_digest=swarm,
        created_ms=created_ms,
        public_key=by.public_key_bytes,
        sign=by.sign,
    )


def checked(envelope: bytes) -> CheckedOffer:
    """Return an offer as a node holds it."""
    found = check_offer(open_offer(envelope), SWARM, NOW_MS)
    assert found is not None
    return found


class Trader:
    """A node that offers and hears offers, joined to others by the test."""

    def __init__(self, number: int, manifest: Manifest = SWARM) -> None:
        self.host = FakeHost(identity=signer(number))
        self.verdicts: list[tuple[PeerId, Verdict]] = []
        self.offered: list[OfferedFamily] = []
        self.training: tuple[Training, ...] = ()
        self.now_ms = NOW_MS
        client = TaskClient(host=self.host, report=self._note, in_thread=at_once)
        self.book = OfferBook()
        self.exchange = OfferExchange(
            host=self.host,
            client=client,
            book=self.book,
            manifest=manifest,
            wall_ms=lambda: self.now_ms,
            rng=random.Random(number),
            training=lambda: self.training,
            on_offered=self.offered.append,
        )
        TaskServer(
            host=self.host,
            shared=SharedTasks(),
            report=self._note,
            in_thread=at_once,
            offers=self.exchange.answer,
        ).serve()
        self._others: dict[PeerId, Trader] = {}
        self.host.answers[TASKS_PROTOCOL] = self._ask_other

    @property
    def peer_id(self) -> PeerId:
        """This node's id."""
        return self.host.peer_id

    def meet(self, other: Trader) -> None:
        """Connect two nodes."""
        for one, two in ((self, other), (other, self)):
            one.host.connect(two.peer_id)
            one._others[two.peer_id] = two

    async def ask(self, other: Trader) -> None:
        """Ask a connected node for its offers."""
        await self.exchange.ask(other.peer_id)

    def names(self) -> list[str]:
        """Return the names of the families on offer."""
        return [one.spec.name for one in self.book.families()]

    async def _ask_other(self, peer_id: PeerId, request: bytes) -> bytes:
        host = self._others[peer_id].host
        if TASKS_PROTOCOL not in host.handlers:
            raise RequestError(RequestFailure.UNSUPPORTED, TASKS_PROTOCOL)
        return await host.ask(self.peer_id, TASKS_PROTOCOL, request)

    def _note(self, peer_id: PeerId, _signer: PeerId | None, verdict: Verdict) -> None:
        self.verdicts.append((peer_id, verdict))


def damaged(envelope: bytes, rng: random.Random) -> Iterator[bytes]:
    """Yield copies of an envelope with a few bytes changed, removed or added, without end."""
    while True:
        raw = bytearray(envelope)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(raw))
            match rng.randrange(3):
                case 0:
                    raw[at] ^= 1 << rng.randrange(8)
                case 1:
                    del raw[at : at + rng.randint(1, 4)]
                case _:
                    raw[at:at] = rng.randbytes(rng.randint(1, 4))
        if bytes(raw) != envelope:
            yield bytes(raw)


UNUSABLE: dict[str, Callable[[Identity], bytes]] = {
    "of another swarm": lambda by: sealed(spec_of_rows(), by, swarm=Digest(bytes(32))),
    "too old": lambda by: sealed(spec_of_rows(), by, created_ms=NOW_MS - 3_600_001),
    "of the future": lambda by: sealed(spec_of_rows(), by, created_ms=NOW_MS + 3_600_000),
    "a family of the swarm": lambda by: sealed(EASY[0], by),
    "with the name of the swarm's": lambda by: sealed(spec_of_rows(EASY[0].name), by),
    "scored by each node itself": lambda by: sealed(
        spec_of_rows(), by, change=lambda family: replace(family, verifier="local")
    ),
    "of an unknown generator": lambda by: sealed(
        spec_of_rows(), by, change=lambda family: replace(family, generator="telepathy")
    ),
    "in another spelling": lambda by: sealed(
        spec_of_rows(), by, change=lambda f: replace(f, config_json=f" {f.config_json}")
    ),
    "without rows": lambda by: sealed(
        spec_of_rows(), by, change=lambda family: replace(family, config_json="{}")
    ),
}
"""Offers that are passed on by no honest node, and are no offence."""
