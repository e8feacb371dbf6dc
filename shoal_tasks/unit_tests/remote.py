"""Calls between the process of the tests and the process of the tested code, in both directions.

    request {"op", "v": [target, arguments, keywords]} ─▶ reply {"v": [result, changed values …],
                                                                "o": which request's value each is}
                                                        └▶ or {"e": name, "b": base, "v": [args]}

While a process waits for a reply, it serves the other's requests, so a test may pass a function to
the tested code. Arguments are copied, and changes to a copy are written back into the original.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from typing import Any, Final

from shoal_base.bounded import LINE_CHARS
from shoal_tasks.unit_tests.channel import Channel, ChannelClosed
from shoal_tasks.unit_tests.values import Decoder, Encoder, Handle, ValueRefusedError

MAX_EXPORTS: Final = 100_000
_NEVER_RAISED: Final = (KeyboardInterrupt, SystemExit, GeneratorExit)


_LINE: Final = "_shoal_line"


def line_of(error: BaseException) -> str:
    """Return one line about an error: the other process's text if it raised the error there."""
    if isinstance(line := error.__dict__.get(_LINE), str) and line:
        return line
    try:
        text = str(error).partition("\n")[0]
    except Exception:  # noqa: BLE001  an exception of any class
        text = ""
    return f"{type(error).__name__}{': ' if text else ''}{text}"[:LINE_CHARS]


def exception_class(name: str, base: str) -> type[Exception]:
    """Return a new exception class, derived from a builtin one by its name."""
    found = getattr(builtins, base, None)
    is_good = isinstance(found, type) and issubclass(found, Exception)
    return type(name, (found if is_good else Exception,), {})  # type: ignore[arg-type]


class Proxy:
    """Base class of proxies for objects of the other process."""

    _shoal_handle: Handle


class RemoteCalls:
    """One process's end of the calls."""

    def __init__(
        self,
        channel: Channel,
        operations: Mapping[str, Callable[..., Any]],
        describe: Callable[[Any], tuple[str, str, str]],
        make_proxy: Callable[[Handle], Any],
        line_of: Callable[[BaseException], str] | None = None,
        *,
        serves_exports_only: bool = False,
    ) -> None:
        """Set up one end.

        `operations` are those that the other process may request. `describe` returns kind, name and
        detail of an object that is passed by reference, or raises `ValueRefusedError`. `line_of`
        returns one readable line about an error. With `serves_exports_only`, the other process may
        use only objects that were passed to it.
        """
        self.channel = channel
        self.shared: dict[str, type] = {}
        """Classes whose objects are copied, by the name that both processes know."""
        self.exceptions: dict[str, type[Exception]] = {}
        """Exceptions that are not builtin, by name."""
        self._operations, self._describe, self._make_proxy = operations, describe, make_proxy
        self._line_of = line_of
        self._serves_exports_only = serves_exports_only
        self._exports: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._proxies: dict[int, Any] = {}

    def request(self, operation: str, target: Any, *arguments: Any, **keywords: Any) -> Any:
        """Return the result of an operation in the other process, or raise its exception.

        Raises `ChannelClosed`, `ValueRefusedError`.
        """
        encoder = Encoder(self._export, self.shared)
        table = encoder.table([target, arguments, keywords])
        self.channel.send({"op": operation, "v": table})
        while "op" in (reply := self.channel.receive()):
            self.serve(reply)
        return self._read_reply(reply, encoder.objects)

    def serve(self, message: dict[str, Any]) -> None:
        """Perform an operation that the other process requested, and reply."""
        changeable: list[tuple[int, Any]] = []
        try:
            decoder = Decoder(message.get("v"), self._resolve, self.shared)
            target, arguments, keywords = decoder.values()
            if self._serves_exports_only and not self._is_exported(target):
                raise ValueRefusedError("an object that was not passed")
            changeable = decoder.changeable()
            function = self._operations[message["op"]]
            result = function(target, *arguments, **keywords)
            reply = self._reply(result, changeable)
        except (*_NEVER_RAISED, ChannelClosed):
            raise
        except BaseException as error:  # noqa: BLE001  it is raised in the other process
            reply = self._error(error)
        self.channel.send(reply)

    def _reply(self, result: Any, changeable: list[tuple[int, Any]]) -> dict[str, Any]:
        encoder = Encoder(self._export, self.shared)
        table = encoder.table([result, *(value for _, value in changeable)])
        origins = [[encoder.number_of(value), number] for number, value in changeable]
        return {"v": table, "o": origins}

    def _error(self, error: BaseException) -> dict[str, Any]:
        kind = type(error)
        base = next(one for one in kind.__mro__ if getattr(builtins, one.__name__, None) is one)
        try:
            table = Encoder(self._export, self.shared).table([error.args])
        except Exception:  # noqa: BLE001  its arguments may be anything
            table = {"n": [["tuple", [kind.__name__]]], "r": [[0]]}
        line = self._line_of(error) if self._line_of else ""
        return {"e": kind.__name__, "b": base.__name__, "v": table, "line": line}

    def _read_reply(self, reply: dict[str, Any], objects: list[Any]) -> Any:
        if "e" in reply:
            raise self._exception(reply)
        existing = {}
        for pair in reply.get("o") or ():
            if not (isinstance(pair, list) and [type(one) for one in pair] == [int, int]):
                raise ValueRefusedError("not a reply")
            number, origin = pair
            if 0 <= origin < len(objects):
                existing[number] = objects[origin]
        values = Decoder(reply.get("v"), self._resolve, self.shared, existing).values()
        if not values:
            raise ValueRefusedError("a reply without a result")
        return values[0]

    def _exception(self, reply: dict[str, Any]) -> Exception:
        name, (arguments,) = str(reply["e"])[:100], Decoder(reply.get("v"), self._resolve).values()
        kind = self.shared.get(name) or getattr(builtins, name, None) or self.exceptions.get(name)
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            kind = self.exceptions[name] = exception_class(name, str(reply.get("b")))
        error: Exception = kind.__new__(kind)
        error.args = tuple(arguments) if isinstance(arguments, tuple) else ()
        if isinstance(line := reply.get("line"), str):
            error.__dict__[_LINE] = line[:LINE_CHARS]
        return error

    def _is_exported(self, value: Any) -> bool:
        number = self._numbers.get(id(value))
        return number is not None and self._exports[number] is value

    def _export(self, value: Any) -> list[Any]:
        if issubclass(type(value), Proxy):
            return ["yours", value._shoal_handle.number]
        kind, name, detail = self._describe(value)
        number = self._numbers.get(id(value))
        if number is None:
            number = len(self._exports)
            if number >= MAX_EXPORTS:
                raise ValueRefusedError("too many objects")
            self._numbers[id(value)] = number
            self._exports.append(value)
        return ["mine", number, kind, str(name)[:100], detail]

    def _resolve(self, node: list[Any]) -> Any:
        tag, number = node[0], node[1]
        if type(number) is not int or number < 0:
            raise ValueRefusedError("no such object")
        if tag == "yours":
            return self._exports[number]
        if tag != "mine":
            raise ValueRefusedError(f"no value of {tag!r}")
        if number not in self._proxies:
            self._proxies[number] = self._make_proxy(Handle(number, *map(str, node[2:5])))
        return self._proxies[number]
