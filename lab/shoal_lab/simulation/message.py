"""Messages of gossip on the simulated network, whose signatures are a flag."""

from __future__ import annotations

from shoal_p2p.gossip.rpc import Message
from shoal_wire.types import PeerId
from shoal_wire.verdict import Reason

FORGED = "forged"
"""The mark of a signature that does not hold."""


def say(
    author: PeerId, sequence: int, topic: str, data: bytes, *, sent_s: float | None = None
) -> Message:
    """Return a message, the same object wherever it comes to."""
    return Message(
        id=f"{author}/{sequence}".encode(),
        author=author,
        topics=(topic,),
        data=data,
        sent_s=sent_s,
    )


def forged(message: Message) -> Message:
    """Return a message in the same name whose signature does not hold."""
    return message._replace(signed=FORGED)


def reject_reason(message: Message, max_data_bytes: int) -> Reason | None:
    """Return why a message breaks the rules of signing or length, as `gossip.messages` does."""
    if len(message.data) > max_data_bytes:
        return Reason.OVERSIZE_MESSAGE
    return Reason.BAD_SIGNATURE if message.signed == FORGED else None
