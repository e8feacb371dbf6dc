"""Base58 (Bitcoin alphabet), the encoding of libp2p's peer ids."""

from __future__ import annotations

_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_DIGITS = {character: digit for digit, character in enumerate(_ALPHABET)}


def is_peer_id_text(text: str) -> bool:
    """True if `text` can be a peer id: base58 of a possible length. Its key is not checked."""
    return 46 <= len(text) <= 64 and all(character in _ALPHABET for character in text)


def b58encode(data: bytes) -> str:
    """Return `data` in base58. Leading zero bytes become leading ``1`` characters."""
    number = int.from_bytes(data, "big")
    digits: list[str] = []
    while number:
        number, remainder = divmod(number, 58)
        digits.append(_ALPHABET[remainder])
    zeros = len(data) - len(data.lstrip(b"\0"))
    return "1" * zeros + "".join(reversed(digits))


def b58decode(text: str) -> bytes:
    """Return the bytes that `b58encode` encoded as `text`. Takes time quadratic in its length.

    Raises:
        ValueError: a character is not in the alphabet.
    """
    number = 0
    for character in text:
        digit = _DIGITS.get(character)
        if digit is None:
            raise ValueError("not base58")
        number = number * 58 + digit
    zeros = len(text) - len(text.lstrip("1"))
    return bytes(zeros) + number.to_bytes((number.bit_length() + 7) // 8, "big")
