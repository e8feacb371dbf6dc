"""When the mesh of a topic takes a new member although it is full enough. Pure.

Gossipsub is content with any mesh of at least its low degree. Two halves of a swarm that were
parted fill their meshes each among themselves; together again, everybody is connected to everybody
and no mesh looks for more, so the halves hear each other only through whoever happens to link them,
or a heartbeat late through offers. The same is true, less sharply, of who joined early and late.

So now and then one peer from outside is taken in, at random, and above the degree one or two of
the old go: a few control messages every ten seconds, and meshes of even size about the degree (in
a simulated swarm of 32, all connected, 6.2 on the mean instead of 7.5). A mesh with nobody to take
in stays due, and takes the first who comes: the one who is back. Connecting anew makes it no
sooner due, and who was pruned waits for its back-off, so a stranger gains by this no larger share
of the mesh than it has of the connections.
"""

from __future__ import annotations

import random
from collections.abc import Collection

MIX_EVERY_S = 10.0
"""Mean time between two newcomers of one mesh."""
MOST_LEAVING = 2
"""Members that go for one newcomer, above the degree: one for it, and one to shrink by. With more,
some who were pruned by many at once found nobody left to graft until the back-offs were over."""


class MeshMixer:
    """Remembers for each topic when a newcomer is due."""

    def __init__(self, rng: random.Random, every_s: float = MIX_EVERY_S) -> None:
        self._rng = rng
        self._every_s = every_s
        self._due: dict[str, float] = {}

    def is_due(self, topic: str, now: float) -> bool:
        """True if the mesh of `topic` should take a newcomer; a topic just met waits its turn."""
        if topic not in self._due:
            self.mixed(topic, now)
        return now >= self._due[topic]

    def mixed(self, topic: str, now: float) -> None:
        """A newcomer was taken in: the next comes later."""
        self._due[topic] = now + self._every_s * self._rng.uniform(0.5, 1.5)

    def keep_only(self, topics: Collection[str]) -> None:
        """Forget the topics that were left."""
        self._due = {topic: due for topic, due in self._due.items() if topic in topics}
