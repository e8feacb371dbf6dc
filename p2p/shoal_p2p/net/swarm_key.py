"""The pre-shared key of a private swarm, in the file format of kubo's ``swarm.key``.

/key/swarm/psk/1.0.0/
/base16/
64 hex digits
"""

from __future__ import annotations

import os
from pathlib import Path

from shoal_base.files import SMALL_FILE_BYTES, create_atomically
from shoal_settings.schema import Settings

KEY_BYTES = 32
_HEADER = "/key/swarm/psk/1.0.0/"
_ENCODING = "/base16/"


class SwarmKeyError(Exception):
    """The key file cannot be used. One line that never contains any of the key."""


def parse_swarm_key(text: str) -> bytes:
    """Return the 32 bytes of a key file. Raises SwarmKeyError."""
    lines = text.split()
    if len(lines) != 3 or lines[0] != _HEADER or lines[1] != _ENCODING:
        raise SwarmKeyError(f"not three lines: {_HEADER}, {_ENCODING} and 64 hex digits")
    try:
        key = bytes.fromhex(lines[2])
    except ValueError:
        raise SwarmKeyError("the third line is not hex digits") from None
    if len(key) != KEY_BYTES:
        raise SwarmKeyError(f"the key has {len(key)} bytes, not {KEY_BYTES}")
    return key


def format_swarm_key(key: bytes) -> str:
    """Return the text of a key file for 32 bytes of key."""
    return f"{_HEADER}\n{_ENCODING}\n{key.hex()}\n"


def key_of_settings(settings: Settings) -> bytes | None:
    """Return the key that the settings name; None for a public swarm. Raises SwarmKeyError."""
    return None if settings.swarm_key == "none" else load_swarm_key(Path(settings.swarm_key))


def load_swarm_key(path: Path) -> bytes:
    """Read a key file. Blocks. Raises SwarmKeyError, one line that names the file."""
    try:
        with path.open("rb") as file:
            content = file.read(SMALL_FILE_BYTES + 1)
        return parse_swarm_key(content[:SMALL_FILE_BYTES].decode("ascii"))
    except OSError as error:
        raise SwarmKeyError(f"cannot read the swarm key {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SwarmKeyError(f"the swarm key {path} is not text") from None
    except SwarmKeyError as error:
        raise SwarmKeyError(f"the swarm key {path} is not used: {error}") from None


def keep_swarm_key(path: Path, key: bytes) -> None:
    """Save a received key to a file that only its owner can read. Blocks.

    Raises:
        SwarmKeyError: the file cannot be written, or contains another key, which is kept.
    """
    try:
        create_atomically(path, format_swarm_key(key).encode(), mode=0o600)
    except FileExistsError:
        if load_swarm_key(path) != key:
            raise SwarmKeyError(
                f"{path} is the key of another swarm: choose another --data-dir"
            ) from None
    except OSError as error:
        raise SwarmKeyError(f"cannot write the swarm key {path}: {error.strerror}") from None


def load_or_create_swarm_key(path: Path) -> bytes:
    """Read a key file, or create one that only its owner can read. Blocks. Raises SwarmKeyError."""
    try:
        text = format_swarm_key(os.urandom(KEY_BYTES))
        create_atomically(path, text.encode(), mode=0o600)
    except FileExistsError:
        pass
    except OSError as error:
        raise SwarmKeyError(f"cannot make the swarm key {path}: {error.strerror}") from None
    return load_swarm_key(path)
