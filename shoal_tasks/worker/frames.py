"""Messages between a client and the task worker: one JSON object per frame. Sans-IO."""

from __future__ import annotations

import json

from shoal_tasks.errors import WorkerProtocolError
from shoal_tasks.spec import JsonValue
from shoal_wire.framing import FrameDecoder, FrameError, encode_frame

Message = dict[str, JsonValue]


def encode_message(message: Message) -> bytes:
    """Return one frame. The JSON is ASCII, so lone surrogates in a completion survive."""
    body = json.dumps(message, separators=(",", ":"), allow_nan=False).encode("ascii")
    return encode_frame(body)


def read_messages(decoder: FrameDecoder, data: bytes) -> list[Message]:
    """Feed received bytes and return the complete messages.

    Raises `WorkerProtocolError` if the bytes are not valid frames of JSON.
    """
    try:
        messages = [json.loads(body) for body in decoder.feed(data)]
    except (FrameError, ValueError, RecursionError) as error:
        raise WorkerProtocolError(f"not a frame of JSON: {error}") from None
    if not all(isinstance(message, dict) for message in messages):
        raise WorkerProtocolError("frame is not a JSON object")
    return messages
