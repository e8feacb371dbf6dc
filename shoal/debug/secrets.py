"""Removes the secrets of a data directory from a bug report, in every encoding.

identity.key, *.key, *token*, *secret* ─┐
variables of the environment ───────────┼─▶ every encoding of each ─▶ [removed]
what looks like one: invitations, … ────┘
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from shoal_base.visible import visible
from shoal_wire.base58 import b58encode
from shoal_wire.invite import LOOKS_LIKE

REMOVED: Final = b"[removed]"
KEPT_SECRET: Final = ("*.key", "*key*", "*token*", "*secret*", "*cookie*")
"""Files whose content is secret, by their name."""
_MAX_FILE_BYTES: Final = 4096  # a key or a token is far shorter
_SHORTEST: Final = 8
"""Bytes or characters; shorter values are not secret and occur by chance."""
_SEED_BYTES: Final = 32  # of an Ed25519 key
_HEX_KEY: Final = re.compile(rb"[0-9a-fA-F]{64}")
_VARIABLE: Final = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|AUTH", re.IGNORECASE)
_LOOKS: Final = (
    re.compile(rb"%s[1-9A-HJ-NP-Za-km-z]{16,}" % LOOKS_LIKE.encode()),
    re.compile(rb"(?<=/base16/)\s*[0-9a-fA-F]{64}"),
    re.compile(rb"\b(?:hf|sk|ghp|gho|glpat|xox[abp])[-_][A-Za-z0-9_-]{16,}"),
    re.compile(rb"(?i)(?<=bearer )[A-Za-z0-9._~+/=-]{8,}"),
    re.compile(rb"(?i)(?<=[?&]token=)[^&\s\"']{4,}"),
    re.compile(rb"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"),
)
"""Patterns that are secret anywhere: invitations, keys of services, passwords in addresses."""


def secrets_of(
    folder: Path, key_files: Iterable[Path], environment: Mapping[str, str], variable: str
) -> set[bytes]:
    """Return every form in which a secret may be written.

    Secrets are in a data directory, in key files outside it and in the environment, where
    `variable` is secret in any case.
    """
    files = {*key_files, *(file for pattern in KEPT_SECRET for file in folder.glob(pattern))}
    found = {secret for file in files for secret in _in_file(file)}
    for name, value in environment.items():
        if (name == variable or _VARIABLE.search(name)) and len(value) >= _SHORTEST:
            found.add(value.encode(errors="surrogateescape"))
    return {form for secret in found for form in forms_of(secret)}


def forms_of(secret: bytes) -> set[bytes]:
    """Return a secret raw, in hex, base64 at any offset, base58 and as JSON and Python quote it."""
    shown = secret.hex()
    text = {secret, b58encode(secret).encode(), *_escaped(secret)}
    text |= {f.encode() for f in (shown, shown.upper(), secret.hex(":"))}
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for offset in range(3):
            # Its first and last letters share bits with the neighbouring bytes.
            whole = encode(bytes(offset) + secret)
            text.add(whole[-(-8 * offset // 6) : 8 * (offset + len(secret)) // 6])
        text |= {encode(secret), encode(secret).rstrip(b"=")}
    return {form for form in text if len(form) >= _SHORTEST}


def without(data: bytes, forms: Iterable[bytes]) -> bytes:
    """Return data with these forms, and other text that looks like a secret, replaced."""
    for form in sorted(forms, key=len, reverse=True):
        data = data.replace(form, REMOVED)
    for pattern in _LOOKS:
        data = pattern.sub(REMOVED, data)
    return data


def _in_file(file: Path) -> Iterator[bytes]:
    """Yield the content of a secret file, and its parts that are secrets themselves."""
    try:
        content = file.read_bytes() if file.stat().st_size <= _MAX_FILE_BYTES else b""
    except OSError:
        return
    for part in (content, *content.split()):
        if len(part) >= 2 * _SHORTEST and not part.startswith(b"/"):
            yield part
    for digits in _HEX_KEY.findall(content):
        yield bytes.fromhex(digits.decode())
    if len(content) > 2 * _SEED_BYTES:  # protobuf: type and length, then seed and public key
        yield content[-2 * _SEED_BYTES : -_SEED_BYTES]


def _escaped(secret: bytes) -> Iterator[bytes]:
    yield repr(secret)[2:-1].encode()
    for text in (secret.decode(errors="backslashreplace"), secret.decode("latin-1")):
        yield text.encode()
        yield text.encode("ascii", "backslashreplace")
        yield visible(text).encode(errors="backslashreplace")
        for ascii_alone in (True, False):
            yield json.dumps(text, ensure_ascii=ascii_alone)[1:-1].encode()
