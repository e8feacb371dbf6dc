"""The key file: created once, readable by every libp2p, never replaced."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from libp2p.crypto.pb import crypto_pb2
from libp2p.crypto.rsa import create_new_key_pair as create_rsa_key_pair
from libp2p.peer.id import ID

from shoal_p2p.net.identity import (
    IdentityError,
    identity_from_seed,
    load_or_create_identity,
    public_key_from_id_bytes,
)
from shoal_wire.envelope import peer_id_of


def one_line(error: BaseException) -> str:
    text = str(error)
    assert text and "\n" not in text
    return text


def test_a_second_start_is_the_same_peer(tmp_path: Path) -> None:
    path = tmp_path / "data" / "identity.key"
    first = load_or_create_identity(path)
    second = load_or_create_identity(path)
    assert first.peer_id == second.peer_id
    assert first.private_key_bytes == second.private_key_bytes
    assert [file.name for file in path.parent.iterdir()] == ["identity.key"]
    assert load_or_create_identity(tmp_path / "other.key").peer_id != first.peer_id


def test_only_the_owner_may_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "identity.key"
    previous = os.umask(0)
    try:
        load_or_create_identity(path)
    finally:
        os.umask(previous)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_peer_id_and_signature_agree_with_libp2p() -> None:
    identity = identity_from_seed(bytes(range(32)))
    assert identity.peer_id == ID.from_pubkey(identity.key_pair.public_key).to_base58()
    assert identity.peer_id == peer_id_of(identity.public_key_bytes)
    assert identity.sign(b"message") == identity.key_pair.private_key.sign(b"message")
    assert identity.key_pair.public_key.verify(b"message", identity.sign(b"message"))
    assert repr(identity.private_key_bytes) not in repr(identity)


def test_known_seed_gives_the_known_peer_id() -> None:
    # Computed once with py-libp2p 0.8.1; go-libp2p derives the same from the same key.
    identity = identity_from_seed(bytes([1]) * 32)
    assert identity.peer_id == "12D3KooWK99VoVxNE7XzyBwXEzW7xhK7Gpv85r9F3V3fyKSUKPH5"


def test_the_file_is_the_standard_protobuf_key(tmp_path: Path) -> None:
    path = tmp_path / "identity.key"
    identity = load_or_create_identity(path)
    expected = identity.private_key_bytes + identity.public_key_bytes
    assert path.read_bytes() == b"\x08\x01\x12\x40" + expected


@pytest.mark.parametrize("size", [32, 64, 96])
def test_reads_every_size_that_libp2ps_have_written(tmp_path: Path, size: int) -> None:
    identity = identity_from_seed(bytes([7]) * 32)
    data = (identity.private_key_bytes + 2 * identity.public_key_bytes)[:size]
    path = write_key(tmp_path, key_of(crypto_pb2.KeyType.Ed25519, data))
    assert load_or_create_identity(path).peer_id == identity.peer_id


def key_of(key_type: crypto_pb2.KeyType.ValueType, data: bytes) -> bytes:
    return crypto_pb2.PrivateKey(key_type=key_type, data=data).SerializeToString()


def write_key(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "identity.key"
    path.write_bytes(content)
    path.chmod(0o600)
    return path


NO_KEYS = {
    "empty": b"",
    "cut": b"\x08",
    "random": os.urandom(68),
    "short": b"\x08\x01\x12\x40" + bytes(63),
    "long": b"x" * 5000,
    "zeros": bytes(68),
    "another's public half": key_of(crypto_pb2.KeyType.Ed25519, bytes([7]) * 64),
    "RSA": key_of(crypto_pb2.KeyType.RSA, create_rsa_key_pair(1024).private_key.to_bytes()),
}


@pytest.mark.parametrize("content", NO_KEYS.values(), ids=NO_KEYS)
def test_a_file_without_an_ed25519_key_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    path = write_key(tmp_path, content)
    with pytest.raises(IdentityError, match=r"corrupt|no ed25519") as caught:
        load_or_create_identity(path)
    assert "backup" in one_line(caught.value)
    assert path.read_bytes() == content


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_open_file_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "identity.key"
    load_or_create_identity(path)
    path.chmod(mode)
    with pytest.raises(IdentityError, match=f"chmod 600 {path}") as caught:
        load_or_create_identity(path)
    one_line(caught.value)


def test_anything_but_a_regular_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "identity.key"
    path.mkdir(mode=0o700)
    with pytest.raises(IdentityError) as caught:
        load_or_create_identity(path)
    one_line(caught.value)
    path.rmdir()
    os.mkfifo(path, 0o600)
    with pytest.raises(IdentityError, match="regular file"):
        load_or_create_identity(path)


def test_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(IdentityError, match="--data-dir") as caught:
        load_or_create_identity(tmp_path / "file" / "identity.key")
    one_line(caught.value)


def test_hashed_and_truncated_peer_ids_contain_no_key() -> None:
    identity = identity_from_seed(bytes([3]) * 32)
    raw = ID.from_base58(identity.peer_id).to_bytes()
    assert public_key_from_id_bytes(raw) == identity.public_key_bytes
    assert public_key_from_id_bytes(raw[:-1]) is None
    assert public_key_from_id_bytes(raw + b"\0") is None
    assert public_key_from_id_bytes(b"\x12\x20" + bytes(32)) is None
    assert public_key_from_id_bytes(b"") is None
