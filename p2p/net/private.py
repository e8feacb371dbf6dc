"""Private networks: every byte of a connection, from the first, under a pre-shared key.

libp2p's *Private Networks* specification, version 1: each side sends a 24-byte nonce and encrypts
all it writes by XSalsa20.  py-libp2p 0.8.1 has a private network of its own making (Salsa20 with
an 8-byte nonce), which go and js do not understand and which breaks when a nonce arrives in two
pieces; so here is the specified one.

A key that differs shows at the first 20 bytes, which are always multistream's header: the
connection ends there, before any handshake, and both sides can say why.  Strangers turned away are
counted, with one log line a minute an address.
"""

from __future__ import annotations

import logging
import os
import struct

import trio
from Crypto.Cipher import Salsa20
from libp2p.abc import IRawConnection
from libp2p.io.abc import ReadWriteCloser
from libp2p.io.exceptions import IOException
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.transport.exceptions import SecurityUpgradeFailure
from libp2p.transport.tcp.tcp import TCP
from multiaddr import Multiaddr  # type: ignore[import-untyped]

from shoal_base.bounded import BoundedDict

logger = logging.getLogger(__name__)

NONCE_BYTES = 24
GREETING = b"\x13/multistream/1.0.0\n"
QUIET_SECONDS = 60.0
"""Between two log lines about strangers at one address."""
_MAX_REMEMBERED = 256
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
    """The other side has no key or another one."""


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

    async def _start_reading(self) -> None:
        nonce = b""
        while len(nonce) < NONCE_BYTES:
            nonce += await self._piece(NONCE_BYTES - len(nonce), "before its nonce was whole")
            # A peer without a key greets at once, and would wait for us to answer.
            if nonce[: len(GREETING)] == GREETING:
                raise WrongSwarmKeyError("the peer has no swarm key, this node has one")
        self._reader = xsalsa20(self._key, nonce)
        greeting = b""
        while len(greeting) < len(GREETING):
            piece = await self._piece(len(GREETING) - len(greeting), "at its greeting")
            greeting += self._reader.decrypt(piece)
            if not GREETING.startswith(greeting):
                raise WrongSwarmKeyError("the peer has another swarm key than this node")
        self._greeting = greeting

    async def _piece(self, size: int, where: str) -> bytes:
        piece = await self.stream.read(size)
        if not piece:
            raise WrongSwarmKeyError(
                f"the peer closed the connection {where}: "
                "perhaps it has no swarm key, or another one"
            )
        return piece

    async def close(self) -> None:
        """Close the stream below."""
        await self.stream.close()

    def get_remote_address(self) -> tuple[str, int] | None:
        """Return host and port of the other end."""
        return self.stream.get_remote_address()


class PrivateTCP(TCP):
    """TCP whose outbound connections are under the key; the swarm wraps inbound ones."""

    def __init__(self, key: bytes) -> None:
        super().__init__()
        self._key = key

    async def dial(self, maddr: Multiaddr) -> IRawConnection:
        """Connect. Raises OpenConnectionError."""
        raw = await super().dial(maddr)
        assert isinstance(raw, RawConnection)
        raw.stream = PrivateStream(raw.stream, self._key)
        return raw


class NotListedError(SecurityUpgradeFailure):
    """The peer is not on the swarm's list."""


class Refusals:
    """What has been refused, and when it was last said."""

    def __init__(self) -> None:
        self.count = 0
        self._said_at: BoundedDict[str, float] = BoundedDict(_MAX_REMEMBERED)

    def note(self, host: str, error: BaseException) -> bool:
        """Count and tell `error` if it is a refusal; False if it is something else."""
        refusal = _refusal_in(error)
        if refusal is None:
            return False
        self.count += 1
        now = trio.current_time()
        if now - self._said_at.get(host, -QUIET_SECONDS) >= QUIET_SECONDS:
            self._said_at[host] = now
            logger.warning("refused a connection from %s: %s", host, refusal)
        return True


def _refusal_in(error: BaseException | None) -> BaseException | None:
    while error is not None and not isinstance(error, NotListedError | WrongSwarmKeyError):
        error = error.__cause__
    return error
