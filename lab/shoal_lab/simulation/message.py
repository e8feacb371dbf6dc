"""Messages of gossip on the simulated network, whose signatures are a flag."""

from __future__ import annotations

from shoal_p2p.gossip.rpc import Message
from shoal_wire.types import PeerId
from shoal_wire.verdict import Reason

FORGED = "forged"
"""Marks an invalid signature."""


def say(
    author: PeerId, sequence: int, topic: str, data: bytes, *, sent_s: float | None = None
) -> Message:
    """Return a message; all receivers share the object."""
    return Message(
        id=f"{author}/{sequence}".encode(),
        author=author,
        topics=(topic,),
        data=data,
        sent_s=sent_s,
    )


def forged(message: Message) -> Message:
    """Return a message of the same author with an invalid signature."""
    return message._replace(signed=FORGED)


def reject_reason(message: Message, max_data_bytes: int) -> Reason | None:
    """Return why a message violates the rules of signing or length, as `gossip.codec` does."""
    if len(message.data) > max_data_bytes:
        return Reason.OVERSIZE_MESSAGE
    return Reason.BAD_SIGNATURE if message.signed == FORGED else None
