"""multistream-select with bounds: how two sides agree on a protocol, before anybody is known.

py-libp2p 0.8.1 reads a line of any length, a hundred windows of it (6 MB and more a stream, counted
by nobody), and answers as many proposals as fit into the deadline.  Here a line is as long as names
are, and who proposes on and on is not heard to the end.
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
"""The greeting, and proposals: who speaks all versions of gossipsub makes five."""


class BoundedCommunicator(MultiselectCommunicator):
    """Reads short lines, and few."""

    _num_read = 0

    async def read(self) -> str:
        """Return the next line without its end. Raises MultiselectCommunicatorError."""
        self._num_read += 1
        if self._num_read > MAX_LINES:
            raise MultiselectCommunicatorError(f"more than {MAX_LINES} lines")
        try:
            line = await read_varint_prefixed_bytes_limited(self.read_writer, SHORT_BYTES)
            if not line.endswith(b"\n"):
                raise MultiselectCommunicatorError("a line without its end")
            return line[:-1].decode()
        except (ParseError, IOException, UnicodeDecodeError) as error:
            raise MultiselectCommunicatorError(f"no line: {error}") from error


def _bounded(communicator: IMultiselectCommunicator) -> BoundedCommunicator:
    assert isinstance(communicator, MultiselectCommunicator)
    return BoundedCommunicator(communicator.read_writer)


class BoundedMultiselect(Multiselect):
    """Answers proposals."""

    async def negotiate(
        self,
        communicator: IMultiselectCommunicator,
        negotiate_timeout: int = DEFAULT_NEGOTIATE_TIMEOUT,
    ) -> tuple[TProtocol | None, StreamHandlerFn | None]:
        """Agree on a protocol that the other side proposes. Raises MultiselectError."""
        return await super().negotiate(_bounded(communicator), negotiate_timeout)


class BoundedMultiselectClient(MultiselectClient):
    """Proposes."""

    async def select_one_of(
        self,
        protocols: Sequence[TProtocol],
        communicator: IMultiselectCommunicator,
        negotiate_timeout: int = DEFAULT_NEGOTIATE_TIMEOUT,
    ) -> TProtocol:
        """Agree on one of `protocols`, the first if it can be. Raises MultiselectClientError."""
        return await super().select_one_of(protocols, _bounded(communicator), negotiate_timeout)


def bound_negotiation(layer: SecurityMultistream | MuxerMultistream) -> None:
    """Have the security or the muxer of connections agreed on within the same bounds."""
    selector: Any = layer._selector
    selector.multiselect = BoundedMultiselect(selector.multiselect.handlers)
    selector.multiselect_client = BoundedMultiselectClient()
