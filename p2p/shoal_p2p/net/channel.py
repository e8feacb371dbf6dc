"""A Noise channel over a connection, read and written in bulk.

py-libp2p 0.8.1 reads each Noise message by two reads, of its length and of the rest, through three
layers with a lock each. Here all available bytes are read at once, and every complete message in
them is decrypted:

    pipe ─▶ up to PIECE_BYTES ─▶ complete messages, decrypted ─▶ receive()
    start_send(), flush() ─▶ encrypted ─▶ pipe
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
    """A secured connection after its handshake. Buffers at most one piece and one Noise message."""

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
        """Encrypted bytes of this connection, also if it is relayed."""
        self._ciphertext = bytearray()
        """The beginning of a message that is incomplete."""
        self._plaintext = b""
        """Decrypted bytes that `read` has not returned yet."""

    async def receive(self) -> bytes:
        """Wait for data and return what is available and authentic; empty at the end.

        Raises:
            IOException, NoiseInvalidMessage: the connection is unusable.
        """
        found, self._plaintext = self._plaintext, b""
        while not found:
            data = await self._pipe.receive()
            if not data:
                return b""
            self.traffic.bytes_in += len(data)
            found = self._decrypt(data)
        return found

    def _decrypt(self, data: bytes) -> bytes:
        ciphertext = self._ciphertext
        ciphertext += data
        plaintexts: list[bytes] = []
        start = 0
        with memoryview(ciphertext) as view:
            while len(ciphertext) - start >= SIZE_NOISE_MESSAGE_LEN:
                body = start + SIZE_NOISE_MESSAGE_LEN
                end = body + int.from_bytes(view[start:body], "big")
                if end > len(ciphertext):
                    break
                plaintexts.append(self._noise.decrypt(bytes(view[body:end])))
                start = end
        del ciphertext[:start]
        return plaintexts[0] if len(plaintexts) == 1 else b"".join(plaintexts)

    def start_send(self, data: bytes) -> bool:
        """Encrypt `data` and send as much as possible without waiting. If this returns False,
        `flush` must send the rest.

        Raises:
            ConnectionClosedError: the connection is gone, or broken inside a message.
        """
        ciphertext: list[bytes] = []
        for start in range(0, len(data), MAX_PLAINTEXT_LENGTH):
            message = self._noise.encrypt(bytes(data[start : start + MAX_PLAINTEXT_LENGTH]))
            ciphertext += len(message).to_bytes(SIZE_NOISE_MESSAGE_LEN, "big"), message
        whole = b"".join(ciphertext)
        self.traffic.bytes_out += len(whole)
        return self._pipe.start_send(whole)

    async def flush(self) -> None:
        """Send the rest of the pending data. Cancellation breaks the connection.

        Raises:
            IOException: the connection is gone.
        """
        await self._pipe.flush()

    async def read(self, n: int | None = None) -> bytes:
        """Return `n` bytes, fewer at the end, or what is available if `n` is None. Raises
        IOException."""
        found = bytearray()
        while len(found) < (1 if n is None else n):
            piece = await self.receive()
            if not piece:
                break
            found += piece
        if n is not None:
            self._plaintext = bytes(found[n:])
            del found[n:]
        if not found and n != 0:
            raise ConnectionClosedError("the peer closed the connection")
        return bytes(found)

    async def write(self, data: bytes) -> None:
        """Send `data`. Only one task may write at a time. Raises IOException."""
        if not self.start_send(data):
            await self.flush()


class ChannelNoise(NoiseTransport):
    """py-libp2p's Noise transport with a stricter choice of keys, which yields a `Channel`."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """Take py-libp2p's arguments."""
        super().__init__(*arguments, **named)
        self.traffic = Traffic()
        """Sum over all channels."""

    def get_pattern(self) -> IPattern:
        """Return a new handshake."""
        return StrictXX(self.local_peer, self.libp2p_privkey, self.noise_privkey)

    async def secure_inbound(self, conn: IRawConnection) -> ISecureConn:
        """Answer a handshake. Raises for an invalid one."""
        return self._channel(await super().secure_inbound(conn), conn)

    async def secure_outbound(self, conn: IRawConnection, peer_id: ID) -> ISecureConn:
        """Start a handshake with `peer_id`. Raises for an invalid answer."""
        return self._channel(await super().secure_outbound(conn, peer_id), conn)

    def _channel(self, session: ISecureConn, conn: IRawConnection) -> Channel:
        assert isinstance(session, SecureSession)
        return Channel(session, pipe_below(conn, self.traffic))
