"""An invitation: a swarm's digest, addresses at which to join it, and perhaps its key, in one word.

    shoal1 + base58(flags, digest of the manifest, [key], peers and their addresses, checksum)

It has only letters and digits, so that chat programs neither split nor reformat it. Its sender is
not trusted: every field is bounded, there is one valid encoding, and it cannot name a file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shoal_wire.base58 import b58decode, b58encode, is_peer_id_text
from shoal_wire.digests import sha256
from shoal_wire.limits import DIGEST_BYTES
from shoal_wire.types import Digest

MAX_ADDRESSES: Final = 8
MAX_LINE_CHARS: Final = 1800
"""Longest line: shorter than one message of the usual chat programs."""
SWARM_KEY_BYTES: Final = 32

_NAME: Final = "shoal"
_VERSION: Final = "1"
LOOKS_LIKE: Final = f"{_NAME}{_VERSION}"
"""Prefix of every invitation."""
_CHECKSUM_BYTES: Final = 5
_PRIVATE, _HAS_KEY = 1, 2
_MAX_TRANSPORT_CHARS: Final = 255
_HOST: Final = r"/(?:ip4|ip6|dns|dns4|dns6|dnsaddr)/[A-Za-z0-9.:-]{1,128}/tcp/[0-9]{1,5}"
_TRANSPORT: Final = re.compile(rf"{_HOST}(?:/p2p/[1-9A-Za-z]{{46,64}}/p2p-circuit)?")


class InviteError(ValueError):
    """A text that is not a usable invitation. The message is one line and quotes none of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invite:
    """The content of an invitation."""

    swarm: Digest
    """SHA-256 of the manifest. A joiner must find this manifest at the addresses."""
    addresses: tuple[str, ...]
    """One to eight full multiaddresses, the best first; those of one peer together."""
    private: bool = False
    """True if the swarm has a key, whether or not it is included here."""
    swarm_key: bytes | None = None
    """32 bytes."""


def encode_invite(invite: Invite) -> str:
    """Return an invitation as one word.

    Raises:
        InviteError: a field that readers would refuse.
    """
    _check(invite)
    flags = (_PRIVATE if invite.private else 0) | (_HAS_KEY if invite.swarm_key else 0)
    parts = [bytes([flags]), invite.swarm, invite.swarm_key or b""]
    for peer, transports in _by_peer(invite.addresses):
        parts += [_short(b58decode(peer)), bytes([len(transports)])]
        parts += [_short(transport.encode("ascii")) for transport in transports]
    payload = b"".join(parts)
    line = f"{LOOKS_LIKE}{b58encode(payload + _checksum(payload))}"
    if len(line) > MAX_LINE_CHARS:
        raise InviteError(f"the invitation is over {MAX_LINE_CHARS} characters: name fewer peers")
    return line


def decode_invite(line: str) -> Invite:
    """Parse an invitation.

    Raises:
        InviteError: the text is no invitation, or one that is of another version, cut, altered or
            too long.
    """
    if len(line) > MAX_LINE_CHARS:
        raise InviteError(f"this is no invitation: it is over {MAX_LINE_CHARS} characters long")
    if not line.startswith(_NAME):
        raise InviteError(f"this is no invitation: one begins with {LOOKS_LIKE}")
    version, body = line[len(_NAME) : len(_NAME) + 1], line[len(_NAME) + 1 :]
    if version != _VERSION:
        newer = "of another version of shoal: upgrade, or ask for one that begins with"
        raise InviteError(f"the invitation is damaged or {newer} {LOOKS_LIKE}")
    try:
        data = b58decode(body)
    except ValueError:
        data = b""
    payload, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    if not payload or checksum != _checksum(payload):
        raise InviteError("the invitation was cut or altered on its way: ask for it again")
    invite = _read(payload)
    if encode_invite(invite) != line:
        raise InviteError("the invitation is not written as this version writes it")
    return invite


class _Reader:
    """Reads bytes from the front."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def take(self, length: int) -> bytes:
        if len(self._data) < length:
            raise InviteError("the invitation ends too early")
        taken, self._data = self._data[:length], self._data[length:]
        return taken

    def byte(self) -> int:
        return self.take(1)[0]

    def text(self) -> str:
        raw = self.take(self.byte())
        if not raw.isascii():
            raise InviteError("the invitation has a malformed address")
        return raw.decode("ascii")

    @property
    def more(self) -> bool:
        return bool(self._data)


def _read(payload: bytes) -> Invite:
    reader = _Reader(payload)
    flags = reader.byte()
    swarm = Digest(reader.take(DIGEST_BYTES))
    key = reader.take(SWARM_KEY_BYTES) if flags & _HAS_KEY else None
    addresses: list[str] = []
    while reader.more:
        peer = b58encode(reader.take(reader.byte()))
        for _ in range(reader.byte()):
            addresses.append(f"{reader.text()}/p2p/{peer}")
    invite = Invite(
        swarm=swarm, addresses=tuple(addresses), private=bool(flags & _PRIVATE), swarm_key=key
    )
    _check(invite)
    return invite


def _check(invite: Invite) -> None:
    if len(invite.swarm) != DIGEST_BYTES:
        raise InviteError("the invitation names no swarm")
    key = invite.swarm_key
    if key is not None and not (invite.private and len(key) == SWARM_KEY_BYTES):
        raise InviteError("the invitation has a malformed key")
    if not 1 <= len(invite.addresses) <= MAX_ADDRESSES:
        raise InviteError(f"an invitation has 1 to {MAX_ADDRESSES} addresses")
    for address in invite.addresses:
        transport, _, peer = address.rpartition("/p2p/")
        if (
            len(transport) > _MAX_TRANSPORT_CHARS
            or not _TRANSPORT.fullmatch(transport)
            or not is_peer_id_text(peer)
        ):
            raise InviteError("the invitation has a malformed address")


def _by_peer(addresses: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return each peer with its addresses, peers in the order of their first one."""
    found: dict[str, list[str]] = {}
    for address in addresses:
        transport, _, peer = address.rpartition("/p2p/")
        found.setdefault(peer, []).append(transport)
    return list(found.items())


def _short(data: bytes) -> bytes:
    return bytes([len(data)]) + data


def _checksum(payload: bytes) -> bytes:
    return sha256(b"shoal-invite\n" + payload)[:_CHECKSUM_BYTES]
