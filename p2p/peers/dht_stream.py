"""A stream of the DHT as the library may read it: messages without their signed records.

py-libp2p 0.8.1 parses the key in a record before anything else, of any kind and size: an RSA key of
megabytes takes the loop for hours. The addresses that a record vouches for stand beside it in the
message, are hearsay either way, and are dialled in measure.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError
from libp2p.abc import INetStream
from libp2p.kad_dht.pb.kademlia_pb2 import Message
from libp2p.network.stream.exceptions import StreamEOF
from libp2p.utils.varint import encode_varint_prefixed

from p2p.net.streams import FrameReader

MAX_MESSAGE_BYTES = 256 * 1024


class RecordlessStream:
    """Stands for a stream; holds at most one message."""

    def __init__(self, stream: INetStream) -> None:
        self._stream = stream
        self._frames = FrameReader(stream, MAX_MESSAGE_BYTES)
        self._left = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def read(self, n: int | None = None) -> bytes:
        """Return up to `n` bytes, or all of a message; none at the end.

        Raises:
            MalformedFrameError: a message is too long.
            libp2p's stream errors: the stream is gone.
        """
        if not self._left:
            try:
                frame = await self._frames.read()
            except StreamEOF:
                return b""
            self._left = encode_varint_prefixed(without_records(frame))
        end = len(self._left) if n is None else n
        taken, self._left = self._left[:end], self._left[end:]
        return taken


def without_records(frame: bytes) -> bytes:
    """Return a message without signed records; what does not parse as it is."""
    try:
        message = Message.FromString(frame)
    except DecodeError:
        return frame
    message.ClearField("senderRecord")
    for peer in (*message.closerPeers, *message.providerPeers):
        peer.ClearField("signedRecord")
    return message.SerializeToString()
