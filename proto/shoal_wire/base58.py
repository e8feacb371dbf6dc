"""Base58 (Bitcoin alphabet), as libp2p writes peer ids."""

from __future__ import annotations

_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_DIGITS = {character: digit for digit, character in enumerate(_ALPHABET)}


def is_peer_id_text(text: str) -> bool:
    """True if `text` may be a peer id: base58 of the right length. The key in it is not checked."""
    return 46 <= len(text) <= 64 and all(character in _ALPHABET for character in text)


def b58encode(data: bytes) -> str:
    """Return `data` in base58; leading zero bytes become leading ones."""
    number = int.from_bytes(data, "big")
    digits: list[str] = []
    while number:
        number, remainder = divmod(number, 58)
        digits.append(_ALPHABET[remainder])
    zeros = len(data) - len(data.lstrip(b"\0"))
    return "1" * zeros + "".join(reversed(digits))


def b58decode(text: str) -> bytes:
    """Return what `b58encode` made `text` of; the time grows with the square of its length.

    Raises:
        ValueError: a character is not of the alphabet.
    """
    number = 0
    for character in text:
        digit = _DIGITS.get(character)
        if digit is None:
            raise ValueError("not base58")
        number = number * 58 + digit
    zeros = len(text) - len(text.lstrip("1"))
    return bytes(zeros) + number.to_bytes((number.bit_length() + 7) // 8, "big")
