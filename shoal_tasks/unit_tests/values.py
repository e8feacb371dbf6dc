"""Values sent between the process of the tests and the process of the tested code. Pure.

    objects ──Encoder──▶ {"n": [node, …], "r": [element, …]} ──JSON──▶ Decoder ──▶ equal objects

An element is a scalar, or ``[number]`` of a node. A node is ``[tag, …]``. The table is flat, so
depth, cycles and shared parts need no special case. Only builtin types, some of the standard
library and numpy arrays are copied, always to the exact type: an instance of a subclass that
redefines ``__eq__`` arrives as its plain base. Anything else is a `Handle` that only its owner can
use.

Nothing here unpickles: a decoder builds only what the tags below name.
"""

from __future__ import annotations

import builtins
import datetime as dt
import sys
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

Element = Any
"""A JSON scalar, or a list with the number of a node."""
Table = dict[str, Any]

_INLINE_INT: Final = 1 << 62
_SCALARS: Final = (bool, int, float, complex, str, bytes, bytearray)
_CONTAINERS: Final = (list, tuple, dict, set, frozenset, range, object)
_FACTORIES: Final[Mapping[str, type]] = {
    one.__name__: one for one in (int, float, str, bool, list, dict, set, tuple)
}


_TYPES: Final[Mapping[str, type]] = {
    name: one
    for name, one in vars(builtins).items()
    if isinstance(one, type)
    and (one in _SCALARS or one in _CONTAINERS or issubclass(one, Exception))
}
"""Classes that are copied by name. Not `type`, nor others whose objects cannot be copied."""


class ValueRefusedError(TypeError):
    """The value cannot be sent, or the bytes do not encode one."""


class Handle:
    """A reference to an object of the other process, which stores it under a number."""

    def __init__(self, number: int, kind: str, name: str, detail: str = "") -> None:
        self.number, self.kind, self.name, self.detail = number, kind, name, detail


def _is_a(kind: type, *bases: type) -> bool:
    # Not isinstance: an object can fake its __class__.
    return issubclass(kind, bases)


class Encoder:
    """One table of values. `export` encodes an object that is passed by reference."""

    def __init__(
        self, export: Callable[[Any], list[Any]], shared: Mapping[str, type] | None = None
    ) -> None:
        """`shared` are classes that both processes know by name: their objects are copied."""
        self._export = export
        self._shared = shared or {}
        self._nodes: list[Any] = []
        self._seen: dict[int, int] = {}
        self._pending: list[tuple[int, Any]] = []
        self.objects: list[Any] = []
        """The object of each node."""

    def table(self, roots: Iterable[Any]) -> Table:
        """Encode the roots as a table. Raises `ValueRefusedError`."""
        elements = [self._element(root) for root in roots]
        while self._pending:
            number, value = self._pending.pop()
            self._nodes[number] = self._node(value)
        return {"n": self._nodes, "r": elements}

    def number_of(self, value: Any) -> int | None:
        """Return the number of an object's node; None if it has none."""
        return self._seen.get(id(value))

    def _element(self, value: Any) -> Element:
        kind = type(value)
        if value is None or kind is str or kind is bool or kind is float:
            return value
        if kind is int and -_INLINE_INT < value < _INLINE_INT:
            return value
        number = self._seen.get(id(value))
        if number is None:
            number = len(self._nodes)
            self._seen[id(value)] = number
            self._nodes.append(None)
            self.objects.append(value)
            self._pending.append((number, value))
        return [number]

    def _elements(self, values: Iterable[Any]) -> list[Element]:
        return [self._element(value) for value in values]

    def _node(self, value: Any) -> list[Any]:
        kind = type(value)
        shared = self._shared.get(kind.__name__)
        if shared is not None and not _is_a(kind, BaseException):
            state = getattr(value, "__dict__", None)
            if isinstance(state, dict):
                return ["object", kind.__name__, self._element(dict(state))]
        if _is_a(kind, *_SCALARS):
            return _scalar(value, kind)
        if _is_a(kind, list, tuple, dict, set, frozenset, deque):
            return self._container(value, kind)
        if (known := _library_value(value, kind)) is not None:
            return known
        if kind in (_DICT_KEYS, _DICT_VALUES, _DICT_ITEMS):
            return ["view", kind.__name__, self._elements(value)]
        if kind is type and _TYPES.get(name := str(value.__name__)) is value:
            return ["type", name]
        return self._export(value)

    def _container(self, value: Any, kind: type) -> list[Any]:
        if _is_a(kind, tuple):
            items = self._elements(tuple.__iter__(value))
            fields = getattr(kind, "_fields", None)
            if isinstance(fields, tuple) and len(fields) == len(items):
                return ["named", kind.__name__, list(map(str, fields)), items]
            return ["tuple", items]
        if _is_a(kind, list):
            return ["list", self._elements(list.__iter__(value))]
        if _is_a(kind, deque):
            return ["deque", self._elements(deque.__iter__(value)), value.maxlen]
        if _is_a(kind, set):
            return ["set", self._elements(set.__iter__(value))]
        if _is_a(kind, frozenset):
            return ["frozenset", self._elements(frozenset.__iter__(value))]
        # An ordered one keeps its order in addition to the dictionary.
        items_of = OrderedDict.items if _is_a(kind, OrderedDict) else dict.items
        pairs = self._elements(one for pair in items_of(value) for one in pair)
        if _is_a(kind, Counter):
            return ["Counter", pairs]
        if _is_a(kind, OrderedDict):
            return ["OrderedDict", pairs]
        if _is_a(kind, defaultdict):
            factory = getattr(value.default_factory, "__name__", "")
            return ["defaultdict", pairs, factory if factory in _FACTORIES else ""]
        return ["dict", pairs]


_NO_PAIRS: Final[dict[str, str]] = {}
_DICT_KEYS, _DICT_VALUES, _DICT_ITEMS = (
    type(_NO_PAIRS.keys()),
    type(_NO_PAIRS.values()),
    type(_NO_PAIRS.items()),
)


def _scalar(value: Any, kind: type) -> list[Any]:
    if _is_a(kind, bool, int):
        return ["int", hex(int.__index__(value))]
    if _is_a(kind, float):
        return ["float", float.__float__(value)]
    if _is_a(kind, str):
        return ["str", str.__str__(value)]
    if _is_a(kind, complex):
        return ["complex", value.real, value.imag]
    return ["bytearray" if _is_a(kind, bytearray) else "bytes", bytes(memoryview(value)).hex()]


def _library_value(value: Any, kind: type) -> list[Any] | None:
    """Return the node of a standard-library or numpy value; None if it is neither."""
    if kind is range:
        return ["range", hex(value.start), hex(value.stop), hex(value.step)]
    if kind is slice or value is Ellipsis or value is NotImplemented:
        return ["text", "slice" if kind is slice else "constant", repr(value)]
    if _is_a(kind, Decimal):
        return ["text", "Decimal", str(value)]
    if _is_a(kind, Fraction):
        return ["fraction", hex(value.numerator), hex(value.denominator)]
    if _is_a(kind, dt.datetime, dt.date, dt.time) and getattr(value, "tzinfo", None) is None:
        base = next(one for one in (dt.datetime, dt.date, dt.time) if _is_a(kind, one))
        return ["text", base.__name__, base.isoformat(value)]
    if _is_a(kind, dt.timedelta):
        return ["timedelta", value.days, value.seconds, value.microseconds]
    numpy = sys.modules.get("numpy")
    if numpy is not None and _is_a(kind, numpy.ndarray, numpy.generic):
        whole = numpy.ascontiguousarray(value)
        if whole.dtype.kind not in "biufcUS":
            return None
        shape = None if _is_a(kind, numpy.generic) else list(value.shape)
        return ["array", whole.dtype.str, shape, whole.tobytes().hex()]
    return None


class Decoder:
    """Builds the values of one table. Raises `ValueRefusedError` for anything malformed."""

    def __init__(
        self,
        table: Any,
        resolve: Callable[[list[Any]], Any],
        shared: Mapping[str, type] | None = None,
        existing: Mapping[int, Any] | None = None,
    ) -> None:
        """`resolve` returns the object of a foreign node. `existing` maps nodes to mutable objects
        that receive the node's content in place."""
        nodes = table.get("n") if isinstance(table, dict) else None
        roots = table.get("r") if isinstance(table, dict) else None
        if not isinstance(nodes, list) or not isinstance(roots, list):
            raise ValueRefusedError("not a table of values")
        self._nodes: list[Any] = nodes
        self._roots: list[Any] = roots
        self._resolve = resolve
        self._shared = shared or {}
        self._existing = existing or {}
        self._built: dict[int, Any] = {}
        self._to_fill: list[tuple[int, Any]] = []

    def values(self) -> list[Any]:
        """Return the roots. Raises `ValueRefusedError`."""
        try:
            roots = [self._value(element) for element in self._roots]
            sets = []
            while self._to_fill:
                number, value = self._to_fill.pop()
                if isinstance(value, set | dict):
                    sets.append((number, value))  # last: their keys must be complete to be hashed
                    self._touch(number)
                else:
                    self._fill(number, value)
            for number, value in reversed(sets):
                self._fill(number, value)
        except ValueRefusedError:
            raise
        except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
            raise ValueRefusedError(f"not a value: {error}") from None
        except RecursionError:
            raise ValueRefusedError("a value is nested too deeply") from None
        return roots

    def changeable(self) -> list[tuple[int, Any]]:
        """Return the mutable values, each with its node's number."""
        tags = {*_EMPTY, "object", "bytearray", "array"}
        return [(n, value) for n, value in self._built.items() if self._nodes[n][0] in tags]

    def _value(self, element: Element) -> Any:
        if not isinstance(element, list):
            if isinstance(element, dict):
                raise ValueRefusedError("not an element")
            return element
        (number,) = element
        if type(number) is not int or not 0 <= number < len(self._nodes):
            raise ValueRefusedError("no such node")
        if number not in self._built:
            self._built[number] = self._build(number, self._nodes[number])
        return self._built[number]

    def _items(self, elements: Sequence[Element]) -> Iterator[Any]:
        return (self._value(element) for element in elements)

    def _touch(self, number: int) -> None:
        """Build the parts of a container that is filled later."""
        for element in self._nodes[number][1]:
            self._value(element)

    def _build(self, number: int, node: Any) -> Any:
        tag = node[0]
        if tag in _EMPTY:
            value = self._existing.get(number)
            if type(value) is not _EMPTY[tag]:
                value = _empty(tag, node)
            self._to_fill.append((number, value))
            return value
        if tag == "object":
            value, kind = self._existing.get(number), self._shared[node[1]]
            if type(value) is not kind:
                value = object.__new__(kind)
            self._to_fill.append((number, value))
            return value
        if tag in _PLAIN:
            value = _PLAIN[tag](*node[1:])
            return _in_place(self._existing.get(number), value)
        if tag == "tuple":
            return tuple(self._items(node[1]))
        if tag == "frozenset":
            return frozenset(self._items(node[1]))
        if tag == "named":
            return _named(node[1], tuple(node[2]))(*self._items(node[3]))
        if tag == "view":
            return _view(node[1], list(self._items(node[2])))
        return self._resolve(node)

    def _fill(self, number: int, value: Any) -> None:
        node = self._nodes[number]
        if node[0] == "object":
            state = self._value(node[2])
            if not isinstance(state, dict) or not all(isinstance(key, str) for key in state):
                raise ValueRefusedError("not an object's state")
            self._fill_later(value, state)
            return
        items = list(self._items(node[1]))
        if isinstance(value, list):
            value[:] = items
            return
        value.clear()
        if isinstance(value, dict):
            update = OrderedDict.update if isinstance(value, OrderedDict) else dict.update
            update(value, zip(items[::2], items[1::2], strict=True))
        else:
            value.update(items) if isinstance(value, set) else value.extend(items)

    @staticmethod
    def _fill_later(value: Any, state: dict[str, Any]) -> None:
        # The same dictionary object, which may be filled later.
        value.__dict__ = state


_EMPTY: Final[Mapping[str, type]] = {
    "list": list,
    "dict": dict,
    "set": set,
    "deque": deque,
    "Counter": Counter,
    "OrderedDict": OrderedDict,
    "defaultdict": defaultdict,
}


def _empty(tag: str, node: list[Any]) -> Any:
    if tag == "deque":
        return deque(maxlen=node[2])
    return defaultdict(_FACTORIES.get(node[2])) if tag == "defaultdict" else _EMPTY[tag]()


def _integer(text: str) -> int:
    return int(text, 16)


def _fraction(numerator: str, denominator: str) -> Fraction:
    return Fraction(_integer(numerator), _integer(denominator))


def _range(*ends: str) -> range:
    return range(*map(_integer, ends))


def _builtin_type(name: str) -> type:
    if name not in _TYPES:
        raise ValueRefusedError(f"no type {name!r}")
    return _TYPES[name]


def _array(dtype: str, shape: list[int] | None, data: str) -> Any:
    import numpy

    kind = numpy.dtype(dtype)
    if kind.kind not in "biufcUS":
        raise ValueRefusedError(f"no array of {dtype}")
    flat = numpy.frombuffer(bytes.fromhex(data), kind)
    return flat[0] if shape is None else flat.reshape(shape).copy()


def _in_place(existing: Any, value: Any) -> Any:
    """Return the value, or the existing object with the value's content."""
    if type(existing) is bytearray and type(value) is bytearray:
        existing[:] = value
        return existing
    if type(existing) is type(value) and hasattr(value, "dtype") and existing.shape == value.shape:
        existing[...] = value
        return existing
    return value


def _text_value(kind: str, text: str) -> Any:
    if kind == "Decimal":
        return Decimal(text)
    if kind == "constant":
        return {"Ellipsis": Ellipsis, "NotImplemented": NotImplemented}[text]
    if kind in ("datetime", "date", "time"):
        return getattr(dt, kind).fromisoformat(text)
    raise ValueRefusedError(f"no value of {kind!r}")


def _named(name: str, fields: tuple[str, ...]) -> type:
    found: type = namedtuple(name, fields)  # type: ignore[misc]
    return found


def _view(name: str, items: list[Any]) -> Any:
    if name == "dict_keys":
        return dict.fromkeys(items).keys()
    return dict(items).items() if name == "dict_items" else dict(enumerate(items)).values()


_PLAIN: Final[Mapping[str, Callable[..., Any]]] = {
    "int": _integer,
    "float": float,
    "str": str,
    "complex": complex,
    "bytes": bytes.fromhex,
    "bytearray": bytearray.fromhex,
    "range": _range,
    "fraction": _fraction,
    "timedelta": dt.timedelta,
    "array": _array,
    "text": _text_value,
    "type": _builtin_type,
}
