"""Noise over a connection, by the bufferful.

py-libp2p 0.8.1 reads each message of noise by two reads, of its length and of the rest, through
three layers with a lock each. Here whatever has come is read at once and every whole message in it
opened:

    pipe ─▶ up to a piece of bytes ─▶ whole messages, opened ─▶ receive()
    begin(), finish() ─▶ sealed ─▶ pipe
"""

from __future__ import annotations

from typing import Any

from libp2p.abc import IRawConnection, ISecureConn
from libp2p.io.exceptions import ConnectionClosedError
from libp2p.peer.id import ID
from libp2p.security.noise.io import (
    MAX_PLAINTEXT_LENGTH,
    SIZE_NOISE_MESSAGE_LEN,
    NoiseTransportReadWriter,
)
from libp2p.security.noise.patterns import IPattern
from libp2p.security.noise.transport import Transport as NoiseTransport
from libp2p.security.secure_session import SecureSession

from shoal_p2p.net.handshake import StrictXX
from shoal_p2p.net.pipes import SocketPipe, StreamPipe, pipe_below
from shoal_p2p.net.traffic import Traffic


class Channel(SecureSession):
    """A connection after its handshake. Holds at most one piece and one message of noise."""

    def __init__(self, session: SecureSession, pipe: SocketPipe | StreamPipe) -> None:
        super().__init__(
            local_peer=session.local_peer,
            local_private_key=session.local_private_key,
            remote_peer=session.remote_peer,
            remote_permanent_pubkey=session.remote_permanent_pubkey,
            is_initiator=session.is_initiator,
            conn=session.conn,
        )
        assert isinstance(session.conn, NoiseTransportReadWriter)
        self._noise = session.conn.noise_state
        self._pipe = pipe
        self.traffic = Traffic()
        """Encrypted bytes of this connection alone, also where it goes through a relay."""
        self._sealed = bytearray()
        """The begin of a message of which the rest is to come."""
        self._opened = b""
        """Decrypted bytes that `read` has left."""

    async def receive(self) -> bytes:
        """Return what has come and is authentic, and wait for it; none at the end.

        Raises:
            IOException, NoiseInvalidMessage: the connection is of no use any more.
        """
        found, self._opened = self._opened, b""
        while not found:
            data = await self._pipe.receive()
            if not data:
                return b""
            self.traffic.bytes_in += len(data)
            found = self._open(data)
        return found

    def _open(self, data: bytes) -> bytes:
        sealed = self._sealed
        sealed += data
        opened: list[bytes] = []
        start = 0
        with memoryview(sealed) as view:
            while len(sealed) - start >= SIZE_NOISE_MESSAGE_LEN:
                body = start + SIZE_NOISE_MESSAGE_LEN
                end = body + int.from_bytes(view[start:body], "big")
                if end > len(sealed):
                    break
                opened.append(self._noise.decrypt(bytes(view[body:end])))
                start = end
        del sealed[:start]
        return opened[0] if len(opened) == 1 else b"".join(opened)

    def begin(self, data: bytes) -> bool:
        """Seal `data` and send what goes at once; True if that was all, else `finish` it.

        Raises:
            ConnectionClosedError: the connection is gone, or broken in the middle of a message.
        """
        sealed: list[bytes] = []
        for start in range(0, len(data), MAX_PLAINTEXT_LENGTH):
            message = self._noise.encrypt(bytes(data[start : start + MAX_PLAINTEXT_LENGTH]))
            sealed += len(message).to_bytes(SIZE_NOISE_MESSAGE_LEN, "big"), message
        whole = b"".join(sealed)
        self.traffic.bytes_out += len(whole)
        return self._pipe.begin(whole)

    async def finish(self) -> None:
        """Send the rest of what was begun. Cancelled, the connection is broken.

        Raises:
            IOException: it is gone.
        """
        await self._pipe.finish()

    async def read(self, n: int | None = None) -> bytes:
        """Return `n` bytes, fewer at the end; what has come if it is None. Raises IOException."""
        found = bytearray()
        while len(found) < (1 if n is None else n):
            piece = await self.receive()
            if not piece:
                break
            found += piece
        if n is not None:
            self._opened = bytes(found[n:])
            del found[n:]
        if not found and n != 0:
            raise ConnectionClosedError("the peer closed the connection")
        return bytes(found)

    async def write(self, data: bytes) -> None:
        """Send `data`. One task at a time. Raises IOException."""
        if not self.begin(data):
            await self.finish()


class ChannelNoise(NoiseTransport):
    """py-libp2p's handshake, for fewer keys, and a `Channel` after it."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """Take what py-libp2p's takes."""
        super().__init__(*arguments, **named)
        self.traffic = Traffic()
        """Sum over all its channels."""

    def get_pattern(self) -> IPattern:
        """Return a handshake."""
        return StrictXX(self.local_peer, self.libp2p_privkey, self.noise_privkey)

    async def secure_inbound(self, conn: IRawConnection) -> ISecureConn:
        """Answer a handshake. Raises what its peer's bytes deserve."""
        return self._channel(await super().secure_inbound(conn), conn)

    async def secure_outbound(self, conn: IRawConnection, peer_id: ID) -> ISecureConn:
        """Make a handshake with `peer_id`. Raises what its peer's bytes deserve."""
        return self._channel(await super().secure_outbound(conn, peer_id), conn)

    def _channel(self, session: ISecureConn, conn: IRawConnection) -> Channel:
        assert isinstance(session, SecureSession)
        return Channel(session, pipe_below(conn, self.traffic))
