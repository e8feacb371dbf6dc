"""multistream-select with limits: protocol negotiation before the peer is authenticated.

py-libp2p 0.8.1 reads a line of any length (a hundred windows of it, 6 MB and more for each stream,
uncounted) and answers as many proposals as fit into the deadline. Here lines have the length of
protocol names, and the number of proposals is limited.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from libp2p.abc import IMultiselectCommunicator
from libp2p.custom_types import StreamHandlerFn, TProtocol
from libp2p.exceptions import ParseError
from libp2p.io.exceptions import IOException
from libp2p.protocol_muxer.exceptions import MultiselectCommunicatorError
from libp2p.protocol_muxer.multiselect import DEFAULT_NEGOTIATE_TIMEOUT, Multiselect
from libp2p.protocol_muxer.multiselect_client import MultiselectClient
from libp2p.protocol_muxer.multiselect_communicator import MultiselectCommunicator
from libp2p.security.security_multistream import SecurityMultistream
from libp2p.stream_muxer.muxer_multistream import MuxerMultistream
from libp2p.utils.varint import read_varint_prefixed_bytes_limited

from shoal_p2p.net.streams import SHORT_BYTES

MAX_LINES = 16
"""The header and the proposals: a peer that supports all versions of gossipsub sends five."""


class BoundedCommunicator(MultiselectCommunicator):
    """Reads a limited number of short lines."""

    _num_read = 0

    async def read(self) -> str:
        """Return the next line without its end. Raises MultiselectCommunicatorError."""
        self._num_read += 1
        if self._num_read > MAX_LINES:
            raise MultiselectCommunicatorError(f"more than {MAX_LINES} lines")
        try:
            line = await read_varint_prefixed_bytes_limited(self.read_writer, SHORT_BYTES)
            if not line.endswith(b"\n"):
                raise MultiselectCommunicatorError("an unterminated line")
            return line[:-1].decode()
        except (ParseError, IOException, UnicodeDecodeError) as error:
            raise MultiselectCommunicatorError(f"no line: {error}") from error


def _bounded(communicator: IMultiselectCommunicator) -> BoundedCommunicator:
    assert isinstance(communicator, MultiselectCommunicator)
    return BoundedCommunicator(communicator.read_writer)


class BoundedMultiselect(Multiselect):
    """The responding side."""

    async def negotiate(
        self,
        communicator: IMultiselectCommunicator,
        negotiate_timeout: int = DEFAULT_NEGOTIATE_TIMEOUT,
    ) -> tuple[TProtocol | None, StreamHandlerFn | None]:
        """Agree on a protocol proposed by the other side. Raises MultiselectError."""
        return await super().negotiate(_bounded(communicator), negotiate_timeout)


class BoundedMultiselectClient(MultiselectClient):
    """The proposing side."""

    async def select_one_of(
        self,
        protocols: Sequence[TProtocol],
        communicator: IMultiselectCommunicator,
        negotiate_timeout: int = DEFAULT_NEGOTIATE_TIMEOUT,
    ) -> TProtocol:
        """Agree on one of `protocols`, preferably the first. Raises MultiselectClientError."""
        return await super().select_one_of(protocols, _bounded(communicator), negotiate_timeout)


def bound_negotiation(layer: SecurityMultistream | MuxerMultistream) -> None:
    """Apply the same limits to the negotiation of security and muxer."""
    selector: Any = layer._selector
    selector.multiselect = BoundedMultiselect(selector.multiselect.handlers)
    selector.multiselect_client = BoundedMultiselectClient()
