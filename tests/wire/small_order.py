"""The points of small order of ed25519's curve, computed: x² and y² from RFC 8032, 5.1."""

from __future__ import annotations

FIELD = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, FIELD) % FIELD
_ROOT_OF_MINUS_1 = pow(2, (FIELD - 1) // 4, FIELD)

Point = tuple[int, int]
ZERO: Point = (0, 1)


def added(one: Point, other: Point) -> Point:
    """Return the sum of two points."""
    (x, y), (u, v) = one, other
    product = _D * x * y * u * v
    return (
        (x * v + y * u) * pow(1 + product, -1, FIELD) % FIELD,
        (y * v + x * u) * pow(1 - product, -1, FIELD) % FIELD,
    )


def times(number: int, point: Point) -> Point:
    """Return `point` added to itself that many times."""
    total = ZERO
    for digit in f"{number:b}":
        total = added(total, total)
        total = added(total, point) if digit == "1" else total
    return total


def at(y: int) -> Point | None:
    """Return a point with this y, if there is one."""
    square = (y * y - 1) * pow(_D * y * y + 1, -1, FIELD) % FIELD
    x = pow(square, (FIELD + 3) // 8, FIELD)
    for root in (x, x * _ROOT_OF_MINUS_1 % FIELD):
        if root * root % FIELD == square:
            return root, y
    return None


def small_order_points() -> set[Point]:
    """Return all: any point, as often as the large prime, is one, and one of order 8 makes all."""
    for y in range(2, 100):
        some = at(y)
        if some is not None and times(4, point := times(ORDER, some)) != ZERO:
            return {times(number, point) for number in range(8)}
    raise AssertionError("no point of order 8")


def encodings(y: int) -> list[bytes]:
    """Return all 32 bytes that say this y: with either sign, and in more than one field."""
    return [
        (number | sign << 255).to_bytes(32, "little")
        for number in (y, y + FIELD)
        if number < 2**255
        for sign in (0, 1)
    ]


def small_order_encodings() -> list[bytes]:
    """Return every encoding of a point of small order, the sign of x right or wrong; sorted."""
    return sorted({raw for _, y in small_order_points() for raw in encodings(y)})
