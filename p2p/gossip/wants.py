"""What was offered to us and asked for: of whom, when, and what has not come. Pure.

A message is asked of one peer a second. Who offered what is being judged is remembered: an offer is
made once, and a busy validator drops what it has no time for. Who offers and does not send breaks a
promise; sending is all that keeps it, whatever becomes of the message here.
"""

from __future__ import annotations

import random
from collections.abc import Container, Hashable, Sequence
from typing import Generic, Protocol, TypeVar

from shoal_base.bounded import BoundedDict

Peer = TypeVar("Peer", bound=Hashable)

_ASK_AGAIN_S = 1.0
_PROMISE_S = 10.0
"""An offered message that was asked for must come within so many seconds."""
_MAX_PROMISES = 4096


class Known(Protocol):
    """What is known of a message by its id."""

    def knows(self, key: bytes) -> bool:
        """Return whether it is seen or being judged."""

    def judges(self, key: bytes) -> bool:
        """Return whether it is being judged: our own trouble may yet make it unseen."""


class WantBook(Generic[Peer]):
    """Offers heard, questions asked and promises made; at most `max_ids` of a kind."""

    def __init__(self, *, max_ids: int) -> None:
        self._asked: dict[bytes, float] = {}
        self._second_copies = BoundedDict[bytes, Peer](max_ids)
        self._promises: dict[Peer, tuple[bytes, float]] = {}
        """An id asked of each peer, and by when it must have come: one at a time."""

    def __len__(self) -> int:
        return len(self._asked) + len(self._second_copies) + len(self._promises)

    def offered(self, peer: Peer, keys: Sequence[bytes], known: Known, now: float) -> list[bytes]:
        """Return those to ask for."""
        for key in keys:
            if known.judges(key):
                self._second_copies.setdefault(key, peer)
        long_ago = now - _ASK_AGAIN_S
        return [k for k in keys if not known.knows(k) and self._asked.get(k, long_ago) <= long_ago]

    def asked(self, peer: Peer, keys: Sequence[bytes], now: float) -> None:
        """`peer` was asked for `keys`, and has promised one of them, at random."""
        self._asked.update(dict.fromkeys(keys, now))
        if peer not in self._promises and len(self._promises) < _MAX_PROMISES:
            self._promises[peer] = (random.choice(keys), now + _PROMISE_S)

    def came(self, peer: Peer, key: bytes) -> None:
        """`peer` has sent a message."""
        if self._promises.get(peer, (b"", 0.0))[0] == key:
            del self._promises[peer]

    def dropped(self, known: Known) -> dict[Peer, list[bytes]]:
        """Return what was dropped while it was judged, by who offered it meanwhile. Forgets it."""
        found: dict[Peer, list[bytes]] = {}
        for key, peer in list(self._second_copies.items()):
            if not known.judges(key):
                del self._second_copies[key]
                if not known.knows(key):
                    found.setdefault(peer, []).append(key)
        return found

    def broken(self, connected: Container[Peer], known: Known, now: float) -> list[Peer]:
        """Return who offered what never came; a connection that ended owes nothing."""
        found = []
        for peer, (key, deadline) in list(self._promises.items()):
            if known.knows(key) or peer not in connected:
                del self._promises[peer]
            elif now >= deadline:
                del self._promises[peer]
                found.append(peer)
        return found

    def forget(self, now: float) -> None:
        """Forget what may be asked for again."""
        self._asked = {k: at for k, at in self._asked.items() if at > now - _ASK_AGAIN_S}
