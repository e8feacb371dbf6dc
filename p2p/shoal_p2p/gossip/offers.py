"""Offers of messages (IHAVE): whom to make one, and what became of those heard. Pure.

Gossipsub offers what it has of the last three heartbeats, at each of them anew. In a small swarm,
where every peer of the topic is offered every id because nothing else mends what a full queue or a
busy validator dropped, that was most of what a quiet node sent. A peer that has shown that it has a
message, or was offered it, gains nothing by hearing of it again; what it then still lacks, its
gaps name (`shoal_p2p.fetch.gaps`).

An offered message is asked of one peer a second. Who else offered it is remembered, for an offer is
made once: a busy validator drops what it has no time for, and who was asked may never have had it.
Who offers and does not send when it is asked at once breaks a promise; sending is all that keeps
it, whatever becomes of the message here. Of whom we leave unread for a while nothing is known: the
message may stand in what is not read, and the offer may have been old when it was.
"""

from __future__ import annotations

import math
import random
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING

from shoal_base.bounded import MANY, BoundedDict
from shoal_base.waits import REPLY_S, RETRY_S
from shoal_p2p.gossip.message_cache import OFFERED_BEATS
from shoal_wire.types import PeerId

if TYPE_CHECKING:
    from shoal_p2p.gossip.mesh import Mesh

_ASKED_OF_ALL = 16
"""Times the ids of a kind: peers offer as many, each."""
BEHIND_S = 0.5
"""A peer left unread for so long has promised nothing, and that it is unread is noted as often. A
second of reading makes up for one."""
_MAX_OTHERS = 4
"""Offers of one message remembered, whose is left to chance: names cost nothing."""
_OFFER_HOLDS_S = float(OFFERED_BEATS)
"""A peer that offers a message has it for at most as long: a heartbeat is a second."""


class IHaveTracker:
    """Remembers, for each peer, the ids that it has or was offered: at most `max_ids` of each."""

    def __init__(self, max_ids: int) -> None:
        self._max_ids = max_ids
        self._knows: dict[PeerId, dict[bytes, None]] = {}

    def note_holder(self, peer: PeerId, key: bytes) -> None:
        """`peer` sent or offered a message, so it has it. With too many the oldest is forgotten:
        that costs one offer too many."""
        known = self._knows.setdefault(peer, {})
        known[key] = None
        if len(known) > self._max_ids:
            del known[next(iter(known))]

    def is_holder(self, peer: PeerId, key: bytes) -> bool:
        """Return whether `peer` has shown that it has a message, or was offered it."""
        return key in self._knows.get(peer, ())

    def news(self, peer: PeerId, keys: Iterable[bytes]) -> list[bytes]:
        """Return those of `keys` that `peer` has not heard of, which it does with this."""
        known = self._knows.get(peer, {})
        found = [key for key in keys if key not in known]
        for key in found:
            self.note_holder(peer, key)
        return found

    def keep_only(
        self, peers: Container[PeerId], keys: Container[bytes], judging: Container[bytes] = ()
    ) -> None:
        """Forget peers that have gone, and ids that nobody offers any more, or is to be sent."""
        self._knows = {
            peer: {key: None for key in known if key in keys or key in judging}
            for peer, known in self._knows.items()
            if peer in peers
        }


class IWantTracker:
    """Offers heard, questions asked and promises made; at most `max_ids` of a kind."""

    def __init__(self, *, max_ids: int, rng: random.Random) -> None:
        self._rng = rng
        self._asked = BoundedDict[bytes, float](_ASKED_OF_ALL * max_ids)
        self._others = BoundedDict[bytes, dict[PeerId, float]](max_ids)
        self._promises: dict[PeerId, tuple[bytes, float]] = {}
        """An id asked of each peer, and by when it must have come: one at a time."""

        self._unread = BoundedDict[PeerId, tuple[float, float]](MANY)
        """Seconds for which each peer was left unread, and the time when that was."""

    def __len__(self) -> int:
        return len(self._asked) + len(self._others) + len(self._promises)

    def offered(self, peer: PeerId, keys: Sequence[bytes], known: Mesh, now: float) -> list[bytes]:
        """Return those to ask for."""
        wanted = []
        for key in keys:
            if known.judges(key) or (self._is_asked(key, now) and not known.knows(key, now)):
                self._remember(peer, key, now)
            elif not known.knows(key, now):
                wanted.append(key)
        return wanted

    def _is_asked(self, key: bytes, now: float) -> bool:
        return now - self._asked.get(key, -math.inf) < RETRY_S

    def _remember(self, peer: PeerId, key: bytes, now: float) -> None:
        others = self._others.setdefault(key, {})
        others.setdefault(peer, now)
        if len(others) > _MAX_OTHERS:
            del others[self._rng.choice(list(others))]

    def asked(self, peer: PeerId, keys: Sequence[bytes], now: float) -> None:
        """`peer` was asked for `keys` that it has just offered: it promised one, at random."""
        self.asked_late(keys, now)
        if (
            peer not in self._promises
            and len(self._promises) < MANY
            and not self._is_behind(peer, now)
        ):
            self._promises[peer] = (self._rng.choice(keys), now + REPLY_S)

    def asked_late(self, keys: Sequence[bytes], now: float) -> None:
        """Note that a peer was asked for `keys`, and may have them no more."""
        for key in keys:
            self._asked[key] = now

    def on_read_paused(self, peer: PeerId, seconds: float, now: float) -> None:
        """We did not read `peer` for so long, until `now`."""
        before, at = self._unread.get(peer, (0.0, now))
        idle = max(0.0, now - seconds - at)
        self._unread[peer] = (max(0.0, before - idle) + seconds, now)

    def _is_behind(self, peer: PeerId, now: float) -> bool:
        unread, at = self._unread.get(peer, (0.0, now))
        return unread - (now - at) >= BEHIND_S

    def came(self, peer: PeerId, key: bytes) -> None:
        """`peer` has sent a message."""
        if self._promises.get(peer, (b"", 0.0))[0] == key:
            del self._promises[peer]

    def pending_iwant(self, known: Mesh, now: float) -> dict[PeerId, list[bytes]]:
        """Return whom to ask for what was dropped while it was judged, or has not come of whom it
        was asked: one who offered it meanwhile. Forgets that offer."""
        found: dict[PeerId, list[bytes]] = {}
        for key, others in list(self._others.items()):
            if known.judges(key) or self._is_asked(key, now):
                continue
            holders = [peer for peer, at in others.items() if now - at <= _OFFER_HOLDS_S]
            if known.knows(key, now) or not holders:
                del self._others[key]
                continue
            peer = self._rng.choice(holders)
            del others[peer]
            found.setdefault(peer, []).append(key)
        return found

    def broken(self, connected: Container[PeerId], known: Mesh, now: float) -> list[PeerId]:
        """Return who offered what never came; a connection that ended, or is not read, owes
        nothing."""
        found = []
        for peer, (key, deadline) in list(self._promises.items()):
            if known.knows(key, now) or peer not in connected:
                del self._promises[peer]
            elif now >= deadline:
                del self._promises[peer]
                if not self._is_behind(peer, now):
                    found.append(peer)
        return found

    def forget(self, now: float) -> None:
        """Forget what may be asked for again."""
        for key, at in list(self._asked.items()):
            if now - at < RETRY_S:
                return
            del self._asked[key]
