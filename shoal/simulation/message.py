"""One gossip message on the simulated network."""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal_wire.types import PeerId

MessageId = tuple[PeerId, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One gossip message, the same object wherever it comes to."""

    author: PeerId
    sequence: int
    topic: str
    data: bytes
    forged: bool = False
    """Its signature does not hold."""
    key: MessageId = field(init=False)
    """What makes it the same message."""
    name: bytes = field(init=False)
    """The same as bytes."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", (self.author, self.sequence))
        object.__setattr__(self, "name", f"{self.author}/{self.sequence}".encode())
