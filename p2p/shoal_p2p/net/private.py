"""Private networks: every byte of a connection, from the first, under a pre-shared key.

libp2p's *Private Networks* specification, version 1: each side sends a 24-byte nonce and encrypts
all it writes by XSalsa20.  py-libp2p 0.8.1 has a private network of its own making (Salsa20 with
an 8-byte nonce), which go and js do not understand and which breaks when a nonce arrives in two
pieces; so here is the specified one.

A key that differs, or that only one side has, shows at the first bytes: the connection ends there,
before any handshake, and both sides can say why.  One that merely ends says nothing of keys.
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

from shoal_p2p.net.address import host_and_port
from shoal_p2p.net.bars import GREETING, HELLO_BYTES, NONCE_BYTES, Bar, looks_enciphered
from shoal_p2p.net.own_port import TAKEN, Source, open_from

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
    """One side has no key, or each another one."""

    def __init__(self, bar: Bar) -> None:
        super().__init__(bar.says)
        self.bar = bar


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


class PrivateStream(ReadWriteCloser):
    """A byte stream under the key. The first read and write exchange the nonces."""

    def __init__(self, stream: ReadWriteCloser, key: bytes) -> None:
        self.stream = stream
        self._key = key
        self._reader: Salsa20.Salsa20Cipher | None = None
        self._writer: Salsa20.Salsa20Cipher | None = None
        self._greeting = b""

    async def write(self, data: bytes) -> None:
        """Encrypt and write `data`."""
        if self._writer is None:
            nonce = os.urandom(NONCE_BYTES)
            # Before the write: two writers at once must not both send a nonce.
            self._writer = xsalsa20(self._key, nonce)
            await self.stream.write(nonce + self._writer.encrypt(data))
            return
        await self.stream.write(self._writer.encrypt(data))

    async def read(self, n: int | None = None) -> bytes:
        """Read at most `n` bytes.

        Raises:
            WrongSwarmKeyError: the first bytes are not what a peer with the key sends.
        """
        if self._reader is None:
            await self._start_reading()
        if self._greeting:
            head = self._greeting if n is None else self._greeting[:n]
            self._greeting = self._greeting[len(head) :]
            return head
        assert self._reader is not None
        data = await self.stream.read(n)
        return self._reader.decrypt(data) if data else b""

    def take_held(self) -> bytes:
        """Return what was read ahead; from then on the stream below may be read directly."""
        held, self._greeting = self._greeting, b""
        return held

    def decipher(self, data: bytes) -> bytes:
        """Return what was read below, in clear. After the first read."""
        assert self._reader is not None
        return self._reader.decrypt(data)

    def encipher(self, data: bytes) -> bytes:
        """Return what is to be written below, in this order. After the first write."""
        assert self._writer is not None
        return self._writer.encrypt(data)

    async def _start_reading(self) -> None:
        nonce = b""
        while len(nonce) < NONCE_BYTES:
            nonce += await self._piece(NONCE_BYTES - len(nonce))
            # A peer without a key greets at once, and would wait for us to answer.
            if nonce.startswith(GREETING):
                raise WrongSwarmKeyError(Bar.KEY_SUPERFLUOUS)
        if not looks_enciphered(nonce):
            raise IOException("the peer speaks another protocol")
        self._reader = xsalsa20(self._key, nonce)
        greeting = b""
        while len(greeting) < len(GREETING):
            greeting += self._reader.decrypt(await self._piece(len(GREETING) - len(greeting)))
            if not GREETING.startswith(greeting):
                raise WrongSwarmKeyError(Bar.KEY_DIFFERS)
        self._greeting = greeting

    async def _piece(self, size: int) -> bytes:
        piece = await self.stream.read(size)
        if not piece:
            # A probe does so, and a fellow who is full or going: no word on keys.
            raise IOException("the peer closed the connection before its greeting was whole")
        return piece

    async def close(self) -> None:
        """Close the stream below."""
        await self.stream.close()

    def get_remote_address(self) -> tuple[str, int] | None:
        """Return host and port of the other end."""
        return self.stream.get_remote_address()


class ClearStream(ReadWriteCloser):
    """A byte stream without a key, on which a peer with one is noticed by its first bytes."""

    def __init__(self, stream: ReadWriteCloser) -> None:
        self.stream = stream
        self._first: bytes | None = None
        """Bytes read ahead and not yet asked for; None before the first read."""

    async def write(self, data: bytes) -> None:
        """Write `data`."""
        await self.stream.write(data)

    async def read(self, n: int | None = None) -> bytes:
        """Read at most `n` bytes.

        Raises:
            WrongSwarmKeyError: the first bytes are those of a peer of a private swarm.
        """
        if self._first is None:
            self._first = await self._read_first()
        if not self._first:
            return await self.stream.read(n)
        head = self._first if n is None else self._first[:n]
        self._first = self._first[len(head) :]
        return head

    def take_held(self) -> bytes:
        """Return what was read ahead; from then on the stream below may be read directly."""
        held, self._first = self._first or b"", b""
        return held

    def decipher(self, data: bytes) -> bytes:
        """Return what was read below, as it is."""
        return data

    def encipher(self, data: bytes) -> bytes:
        """Return what is to be written below, as it is."""
        return data

    async def _read_first(self) -> bytes:
        first = b""
        while len(first) < HELLO_BYTES and not first.startswith(GREETING):
            piece = await self.stream.read(HELLO_BYTES - len(first))
            if not piece:
                break
            first += piece
        if looks_enciphered(first):
            raise WrongSwarmKeyError(Bar.KEY_MISSING)
        return first

    async def close(self) -> None:
        """Close the stream below."""
        await self.stream.close()

    def get_remote_address(self) -> tuple[str, int] | None:
        """Return host and port of the other end."""
        return self.stream.get_remote_address()


class KeyedTCP(TCP):
    """TCP whose outbound connections are under the key, or clear; the swarm wraps inbound ones."""

    def __init__(
        self,
        wrap: Callable[[ReadWriteCloser], ReadWriteCloser],
        source: Callable[[str], Source | None] = lambda _host: None,
    ) -> None:
        """`source` is where to dial a literal address from, None for any port."""
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
        self, maddr: Multiaddr, source: Source | None = None
    ) -> IRawConnection:
        host, port = host_and_port(str(maddr).partition("/p2p/")[0])
        own = source or self._source(host)
        if own is not None:
            try:
                return RawConnection(TrioTCPStream(await open_from(host, port, own)), True)
            except OSError as error:
                if error.errno not in TAKEN:
                    raise OpenConnectionError(f"cannot connect to {maddr}: {error}") from error
        return await super()._dial_resolved(maddr)
