"""The node's persistent ed25519 identity.

The key file is the protobuf ``PrivateKey`` of the libp2p peer-id specification (type, then 64
bytes: seed and public key), so go-, rust- and js-libp2p can read it. A file that cannot be used is
an error for the user to solve: replacing it silently would change the node's peer id.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from google.protobuf.message import DecodeError
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.keys import KeyPair
from libp2p.crypto.pb import crypto_pb2

from shoal_base.files import SMALL_FILE_BYTES, create_atomically
from shoal_wire.envelope import peer_id_of
from shoal_wire.types import PeerId

_SEED_BYTES = 32
_PEER_ID_PREFIX = bytes((0x00, 0x24))
"""Multihash *identity*, 36 bytes long: an ed25519 public key is its own peer id."""
_PUBLIC_KEY_PREFIX = bytes((0x08, 0x01, 0x12, 0x20))
"""Protobuf ``PublicKey`` up to its 32 key bytes: type 1 (ed25519), data of length 32."""


class IdentityError(Exception):
    """The key file cannot be used. The message is one line and says what to do."""


def public_key_from_id_bytes(peer_id: bytes) -> bytes | None:
    """Return the raw ed25519 key (32 bytes) inside binary `peer_id`; None if there is none.

    Hashed ids (RSA and others) contain no key; shoal never issues or accepts them.
    """
    if not peer_id.startswith(_PEER_ID_PREFIX):
        return None
    return public_key_of(peer_id[len(_PEER_ID_PREFIX) :])


def public_key_of(message: bytes) -> bytes | None:
    """Return the raw ed25519 key in libp2p's protobuf ``PublicKey``; None if there is none."""
    if len(message) != len(_PUBLIC_KEY_PREFIX) + 32 or not message.startswith(_PUBLIC_KEY_PREFIX):
        return None
    return message[len(_PUBLIC_KEY_PREFIX) :]


def protobuf_public_key(public_key: bytes) -> bytes:
    """Return libp2p's protobuf ``PublicKey`` of a raw ed25519 key."""
    return _PUBLIC_KEY_PREFIX + public_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A node's key pair and peer id. The private key never leaves the node process."""

    peer_id: PeerId
    public_key_bytes: bytes
    """Raw, 32 bytes."""
    private_key_bytes: bytes = field(repr=False)
    """Raw seed, 32 bytes."""
    key_pair: KeyPair = field(repr=False)
    """The same key as py-libp2p's type."""
    _signer: Ed25519PrivateKey = field(repr=False)

    def sign(self, message: bytes) -> bytes:
        """Return the 64-byte ed25519 signature over `message` (RFC 8032: deterministic)."""
        return self._signer.sign(message)


def identity_from_seed(seed: bytes) -> Identity:
    """Return the identity of a 32-byte seed."""
    signer = Ed25519PrivateKey.from_private_bytes(seed)
    public = signer.public_key().public_bytes_raw()
    return Identity(
        peer_id=peer_id_of(public),
        public_key_bytes=public,
        private_key_bytes=seed,
        key_pair=create_new_key_pair(seed),
        _signer=signer,
    )


def load_or_create_identity(path: Path) -> Identity:
    """Read the key file at `path`, or create it (mode 0600, atomically) if there is none.

    Raises:
        IdentityError: the file is unreadable, corrupt, not ed25519, or accessible to other users.
    """
    try:
        return _load(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise IdentityError(
            f"cannot read the identity file {path}: {error.strerror}; "
            "make it readable for this user or choose another --data-dir"
        ) from error
    _create(path, os.urandom(_SEED_BYTES))
    return _load(path)


def _load(path: Path) -> Identity:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise IdentityError(
                f"the identity file {path} is not a regular file; "
                "move it away or choose another --data-dir"
            )
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise IdentityError(
                f"the identity file {path} can be read or changed by other users; "
                f"run: chmod 600 {path}"
            )
        content = file.read(SMALL_FILE_BYTES + 1)
    return identity_from_seed(_decode(content, path))


def _decode(content: bytes, path: Path) -> bytes:
    """Return the seed in a key file. Accepts 32 (py), 64 (standard) and 96 (old go) bytes."""
    advice = "restore it from a backup, or move it away to start with a new peer id"
    corrupt = IdentityError(f"the identity file {path} is corrupt; {advice}")
    message = crypto_pb2.PrivateKey()
    try:
        if len(content) > SMALL_FILE_BYTES:
            raise corrupt
        message.ParseFromString(content)
    except DecodeError:
        raise corrupt from None
    if not message.IsInitialized() or not message.HasField("data"):
        raise corrupt
    if message.key_type != crypto_pb2.KeyType.Ed25519:
        raise IdentityError(f"the identity file {path} holds no ed25519 key; {advice}")
    data = bytes(message.data)
    seed = data[:_SEED_BYTES]
    if len(data) not in (32, 64, 96):
        raise corrupt
    public = identity_from_seed(seed).public_key_bytes
    if any(data[start : start + 32] != public for start in range(32, len(data), 32)):
        raise corrupt
    return seed


def _create(path: Path, seed: bytes) -> None:
    message = crypto_pb2.PrivateKey(
        key_type=crypto_pb2.KeyType.Ed25519,
        data=seed + identity_from_seed(seed).public_key_bytes,
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        create_atomically(path, message.SerializeToString(), mode=0o600)
    except FileExistsError:
        return
    except OSError as error:
        raise IdentityError(
            f"cannot create the identity file {path}: {error.strerror}; "
            "make the directory writable or choose another --data-dir"
        ) from error
