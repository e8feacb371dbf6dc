"""Private networks: all bytes of a connection are encrypted with a pre-shared key.

This is libp2p's *Private Networks* specification, version 1: each side sends a nonce of 24 bytes
and encrypts all that it writes with XSalsa20. py-libp2p 0.8.1 implements a different scheme
(Salsa20 with a nonce of 8 bytes), which go and js do not understand and which breaks if a nonce
arrives in two pieces. So the specified one is implemented here.

A key that differs, or that only one side has, is detected in the first bytes: the connection ends
before any handshake, and both sides can report the reason. A connection that merely ends says
nothing about keys.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable

from Crypto.Cipher import Salsa20
from libp2p.abc import IRawConnection
from libp2p.io.abc import ReadWriteCloser
from libp2p.io.exceptions import IOException
from libp2p.io.trio import TrioTCPStream
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.transport.exceptions import OpenConnectionError
from libp2p.transport.tcp.tcp import TCP
from multiaddr import Multiaddr  # type: ignore[import-untyped]

from shoal_p2p.net.access import GREETING, HELLO_BYTES, NONCE_BYTES, AccessDenied, looks_encrypted
from shoal_p2p.net.address import host_and_port
from shoal_p2p.net.listen_port import ADDRESS_IN_USE, BindAddress, connect_from

_ROUNDS = 20
_MASK = 0xFFFFFFFF
_SIGMA = struct.unpack("<4I", b"expand 32-byte k")
# Salsa20's quarter rounds as (target, a, b, rotation): columns, then rows.
_DOUBLE_ROUND = tuple(
    (line[(i + 1) % 4], line[i % 4], line[(i + 3) % 4], turn)
    for line in (
        (0, 4, 8, 12),
        (5, 9, 13, 1),
        (10, 14, 2, 6),
        (15, 3, 7, 11),
        (0, 1, 2, 3),
        (5, 6, 7, 4),
        (10, 11, 8, 9),
        (15, 12, 13, 14),
    )
    for i, turn in enumerate((7, 9, 13, 18))
)


class WrongSwarmKeyError(IOException):
    """One side has no key, or the keys differ."""

    def __init__(self, denial: AccessDenied) -> None:
        super().__init__(denial.message)
        self.denial = denial


def hsalsa20(key: bytes, nonce: bytes) -> bytes:
    """Return the 32-byte subkey of a 32-byte key and 16 bytes of nonce (Bernstein, *XSalsa20*)."""
    k, n = struct.unpack("<8I", key), struct.unpack("<4I", nonce)
    s = _SIGMA
    x = [s[0], *k[:4], s[1], *n, s[2], *k[4:], s[3]]
    for _ in range(_ROUNDS // 2):
        for target, a, b, turn in _DOUBLE_ROUND:
            total = (x[a] + x[b]) & _MASK
            x[target] ^= ((total << turn) | (total >> (32 - turn))) & _MASK
    return struct.pack("<8I", x[0], x[5], x[10], x[15], x[6], x[7], x[8], x[9])


def xsalsa20(key: bytes, nonce: bytes) -> Salsa20.Salsa20Cipher:
    """Return the stream cipher of a 32-byte key and a 24-byte nonce."""
    return Salsa20.new(key=hsalsa20(key, nonce[:16]), nonce=nonce[16:])


class KeyCheckedStream(ReadWriteCloser):
    """A byte stream whose first bytes reveal whether both ends have the same key, or none."""

    def __init__(self, stream: ReadWriteCloser) -> None:
        self.stream = stream
        self._buffered: bytes | None = None
        """Bytes read ahead and not returned yet; None before the first read."""

    async def write(self, data: bytes) -> None:
        """Write `data`."""
        await self.stream.write(self.encrypt(data))

    async def read(self, n: int | None = None) -> bytes:
        """Read at most `n` bytes.

        Raises:
            WrongSwarmKeyError: the first bytes are not what a peer of the same swarm sends.
        """
        if self._buffered is None:
            self._buffered = await self._read_header()
        if not self._buffered:
            return self.decrypt(await self.stream.read(n))
        head = self._buffered if n is None else self._buffered[:n]
        self._buffered = self._buffered[len(head) :]
        return head

    async def _read_header(self) -> bytes:
        """Check the first bytes, and return those that belong to the stream."""
        raise NotImplementedError

    def take_buffered(self) -> bytes:
        """Return the bytes read ahead. After this the underlying stream may be read directly."""
        buffered, self._buffered = self._buffered or b"", b""
        return buffered

    def decrypt(self, data: bytes) -> bytes:
        """Return the plaintext of bytes from the underlying stream. Only after the first read."""
        return data

    def encrypt(self, data: bytes) -> bytes:
        """Return the bytes for the underlying stream, to be written in this order. Only after the
        first write."""
        return data

    async def close(self) -> None:
        """Close the underlying stream."""
        await self.stream.close()

    def get_remote_address(self) -> tuple[str, int] | None:
        """Return host and port of the other end."""
        return self.stream.get_remote_address()


class PrivateStream(KeyCheckedStream):
    """A stream encrypted with the swarm key. The first read and write exchange the nonces."""

    def __init__(self, stream: ReadWriteCloser, key: bytes) -> None:
        super().__init__(stream)
        self._key = key
        self._reader: Salsa20.Salsa20Cipher | None = None
        self._writer: Salsa20.Salsa20Cipher | None = None

    async def write(self, data: bytes) -> None:
        """Encrypt and write `data`."""
        nonce = b""
        if self._writer is None:
            nonce = os.urandom(NONCE_BYTES)
            # Before the write: two writers at once must not both send a nonce.
            self._writer = xsalsa20(self._key, nonce)
        await self.stream.write(nonce + self.encrypt(data))

    def decrypt(self, data: bytes) -> bytes:
        assert self._reader is not None
        return self._reader.decrypt(data)

    def encrypt(self, data: bytes) -> bytes:
        assert self._writer is not None
        return self._writer.encrypt(data)

    async def _read_header(self) -> bytes:
        nonce = b""
        while len(nonce) < NONCE_BYTES:
            nonce += await self._read_piece(NONCE_BYTES - len(nonce))
            # A peer without a key sends its header at once and would wait for an answer.
            if nonce.startswith(GREETING):
                raise WrongSwarmKeyError(AccessDenied.KEY_UNEXPECTED)
        self._reader = xsalsa20(self._key, nonce)
        greeting = b""
        while len(greeting) < len(GREETING):
            greeting += self._reader.decrypt(await self._read_piece(len(GREETING) - len(greeting)))
            if GREETING.startswith(greeting):
                continue
            # Checked only now, because the one nonce in 2,700 that does not look encrypted is valid
            # under the right key.
            if not looks_encrypted(nonce):
                raise IOException("the peer speaks another protocol")
            raise WrongSwarmKeyError(AccessDenied.KEY_DIFFERS)
        return greeting

    async def _read_piece(self, size: int) -> bytes:
        piece = await self.stream.read(size)
        if not piece:
            # A port scan does so, and a peer that is full or shutting down. It says nothing about
            # keys.
            raise IOException("the peer closed the connection inside its header")
        return piece


class ClearStream(KeyCheckedStream):
    """A stream without a key, which detects a peer that has one."""

    async def _read_header(self) -> bytes:
        first = b""
        while len(first) < HELLO_BYTES and not first.startswith(GREETING):
            piece = await self.stream.read(HELLO_BYTES - len(first))
            if not piece:
                break
            first += piece
        if looks_encrypted(first):
            raise WrongSwarmKeyError(AccessDenied.KEY_MISSING)
        return first


class KeyedTCP(TCP):
    """TCP with or without the swarm key for outbound connections. The swarm wraps inbound ones."""

    def __init__(
        self,
        wrap: Callable[[ReadWriteCloser], ReadWriteCloser],
        source: Callable[[str], BindAddress | None] = lambda _host: None,
    ) -> None:
        """`source` returns the local address for dialling a literal address; None for any port."""
        super().__init__()
        self._wrap = wrap
        self._source = source

    async def dial(self, maddr: Multiaddr) -> IRawConnection:
        """Connect. Raises OpenConnectionError."""
        raw = await super().dial(maddr)
        assert isinstance(raw, RawConnection)
        raw.stream = self._wrap(raw.stream)
        return raw

    async def _dial_resolved(
        self, maddr: Multiaddr, source: BindAddress | None = None
    ) -> IRawConnection:
        host, port = host_and_port(str(maddr).partition("/p2p/")[0])
        own = source or self._source(host)
        if own is not None:
            try:
                return RawConnection(TrioTCPStream(await connect_from(host, port, own)), True)
            except OSError as error:
                if error.errno not in ADDRESS_IN_USE:
                    raise OpenConnectionError(f"cannot connect to {maddr}: {error}") from error
        return await super()._dial_resolved(maddr)
