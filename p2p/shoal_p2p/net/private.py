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

from shoal_p2p.net.access import GREETING, HELLO_BYTES, NONCE_BYTES, AccessDenied, looks_encrypted
from shoal_p2p.net.address import host_and_port
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

    def __init__(self, bar: AccessDenied) -> None:
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


class FirstSeen(ReadWriteCloser):
    """A byte stream whose first bytes tell whether both ends have the same key, or both none."""

    def __init__(self, stream: ReadWriteCloser) -> None:
        self.stream = stream
        self._held: bytes | None = None
        """Bytes read ahead and not yet asked for; None before the first read."""

    async def write(self, data: bytes) -> None:
        """Write `data`."""
        await self.stream.write(self.encipher(data))

    async def read(self, n: int | None = None) -> bytes:
        """Read at most `n` bytes.

        Raises:
            WrongSwarmKeyError: the first bytes are not what a peer of the same swarm sends.
        """
        if self._held is None:
            self._held = await self._begin()
        if not self._held:
            return self.decipher(await self.stream.read(n))
        head = self._held if n is None else self._held[:n]
        self._held = self._held[len(head) :]
        return head

    async def _begin(self) -> bytes:
        """Look at the first bytes, and return those of them that are the stream's."""
        raise NotImplementedError

    def take_held(self) -> bytes:
        """Return what was read ahead; from then on the stream below may be read directly."""
        held, self._held = self._held or b"", b""
        return held

    def decipher(self, data: bytes) -> bytes:
        """Return what was read below, in clear. After the first read."""
        return data

    def encipher(self, data: bytes) -> bytes:
        """Return what is to be written below, in this order. After the first write."""
        return data

    async def close(self) -> None:
        """Close the stream below."""
        await self.stream.close()

    def get_remote_address(self) -> tuple[str, int] | None:
        """Return host and port of the other end."""
        return self.stream.get_remote_address()


class PrivateStream(FirstSeen):
    """One under the key. The first read and write exchange the nonces."""

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
        await self.stream.write(nonce + self.encipher(data))

    def decipher(self, data: bytes) -> bytes:
        assert self._reader is not None
        return self._reader.decrypt(data)

    def encipher(self, data: bytes) -> bytes:
        assert self._writer is not None
        return self._writer.encrypt(data)

    async def _begin(self) -> bytes:
        nonce = b""
        while len(nonce) < NONCE_BYTES:
            nonce += await self._piece(NONCE_BYTES - len(nonce))
            # A peer without a key greets at once, and would wait for us to answer.
            if nonce.startswith(GREETING):
                raise WrongSwarmKeyError(AccessDenied.KEY_SUPERFLUOUS)
        self._reader = xsalsa20(self._key, nonce)
        greeting = b""
        while len(greeting) < len(GREETING):
            greeting += self._reader.decrypt(await self._piece(len(GREETING) - len(greeting)))
            if GREETING.startswith(greeting):
                continue
            # Only now: under the right key the one nonce in 2,700 serves that looks like none.
            if not looks_encrypted(nonce):
                raise IOException("the peer speaks another protocol")
            raise WrongSwarmKeyError(AccessDenied.KEY_DIFFERS)
        return greeting

    async def _piece(self, size: int) -> bytes:
        piece = await self.stream.read(size)
        if not piece:
            # A probe does so, and a fellow who is full or going: no word on keys.
            raise IOException("the peer closed the connection before its greeting was whole")
        return piece


class ClearStream(FirstSeen):
    """One without a key, on which a peer with one is noticed."""

    async def _begin(self) -> bytes:
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
