"""Runs short Python programs by interpreting their syntax tree, step by step. Pure.

    text ──ast.parse──▶ tree ──▶ statements, values ──▶ printed lines, or the last value

Python itself compiles or evaluates nothing: a program that a peer sent reaches no objects except
the numbers, texts, lists and dictionaries that it creates (`snippet_values`). There are no
attributes, classes, imports, files or lists of lists. Steps, nesting and sizes are bounded, so a
program ends the same way on every machine.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from shoal_tasks.worker.snippet_values import (
    CONSTANTS,
    FUNCTIONS,
    MAX_SIZE,
    METHODS,
    OPERATORS,
    UNREADABLE,
    SnippetError,
    apply_operator,
    bounded_list,
    call_method,
    check_element,
    check_size,
    text_of,
)

MAX_STEPS: Final = 20_000
"""Maximum statements and operations: some 60 ms of the second that a whole game has."""
MAX_OUTPUT_CHARS: Final = 2000
_ITEMS_A_STEP: Final = 64
"""Reading this many items of a value counts as one additional step."""
_MAX_DEPTH: Final = 80
"""Maximum nesting of values and calls."""
_KNOWN: Final = (
    *(ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.comprehension),
    *(ast.arguments, ast.arg, ast.alias, ast.keyword, ast.Expr, ast.Assign, ast.AugAssign),
    *(ast.If, ast.While, ast.For, ast.FunctionDef, ast.Return, ast.Break, ast.Continue, ast.Pass),
    *(ast.Import, ast.ImportFrom, ast.Constant, ast.Name, ast.BinOp, ast.UnaryOp, ast.BoolOp),
    *(ast.Compare, ast.IfExp, ast.List, ast.Tuple, ast.Dict, ast.Subscript, ast.Slice),
    *(ast.ListComp, ast.GeneratorExp, ast.Call, ast.Attribute),
)


class _Return(Exception):  # noqa: N818 - control flow
    def __init__(self, value: Any) -> None:
        self.value = value


class _Break(Exception):  # noqa: N818 - control flow
    pass


class _Continue(Exception):  # noqa: N818 - control flow
    pass


def run_snippet(source: str) -> str:
    """Return what a program printed, or the value of its last line; an error is one line."""
    program = _Program()
    try:
        try:
            with warnings.catch_warnings(action="ignore"):  # syntax warnings
                tree = ast.parse(source.strip("\n")) if source.isascii() else None
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            tree = None
        if tree is None or not all(
            isinstance(one, _KNOWN) for one in islice(ast.walk(tree), 1, None)
        ):
            raise SnippetError(UNREADABLE)
        body = tree.body
        last = body[-1] if body else None
        if isinstance(last, ast.Expr):
            program.run(body[:-1], program.names)
            if (value := program.value(last.value, program.names)) is not None:
                program.say(text_of(value))
        else:
            program.run(body, program.names)
        failed = ""
    except SnippetError as error:
        failed = f"error: {error}"
    except (_Return, _Break, _Continue):
        failed = f"error: {UNREADABLE}"
    except RecursionError:
        failed = "error: nested too deeply"
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        failed = f"error: {type(error).__name__}"
    output = "\n".join(program.lines)[:MAX_OUTPUT_CHARS]
    return "\n".join(part for part in (output, failed) if part)


class _Function:
    """A function defined by the program."""

    def __init__(self, parameters: list[str], body: list[ast.stmt]) -> None:
        self.parameters, self.body = parameters, body


class _Program:
    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self.lines: list[str] = []
        self._num_chars = self._steps = self._depth = 0

    def say(self, text: str) -> None:
        self._num_chars += len(text) + 1
        self.lines.append(text)
        if self._num_chars > MAX_OUTPUT_CHARS:
            raise SnippetError("too much printed")

    def run(self, body: list[ast.stmt], names: dict[str, Any]) -> None:
        for statement in body:
            self._step()
            self._do(statement, names)

    def _step(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise SnippetError("too many steps")

    def _do(self, node: ast.stmt, names: dict[str, Any]) -> None:
        match node:
            case ast.Expr(value=value):
                self.value(value, names)
            case ast.Assign(targets=targets, value=value):
                made = self.value(value, names)
                for target in targets:
                    self._assign(target, made, names)
            case ast.AugAssign(target=target, op=op, value=value):
                read = ast.Subscript if isinstance(target, ast.Subscript) else ast.Name
                if not isinstance(target, read):
                    raise SnippetError(UNREADABLE)
                before = self.value(target, names)
                self._assign(target, apply_operator(op, before, self.value(value, names)), names)
            case ast.If(test=test, body=body, orelse=orelse):
                self.run(body if self.value(test, names) else orelse, names)
            case ast.While(test=test, body=body, orelse=[]):
                while self.value(test, names) and self._loops(body, names):
                    self._step()
            case ast.For(target=target, iter=items, body=body, orelse=[]):
                found = self.value(items, names)
                for item in found if isinstance(found, range) else bounded_list(found):
                    self._step()
                    self._assign(target, item, names)
                    if not self._loops(body, names):
                        break
            case ast.FunctionDef(name=name, args=arguments, body=body, decorator_list=[]):
                plain = ast.arguments([], arguments.args, None, [], [], None, [])
                if ast.dump(arguments) != ast.dump(plain):
                    raise SnippetError("a function has plain parameters here")
                names[name] = _Function([one.arg for one in arguments.args], body)
            case ast.Return(value=value):
                raise _Return(None if value is None else self.value(value, names))
            case ast.Break():
                raise _Break
            case ast.Continue():
                raise _Continue
            case ast.Pass():
                pass
            case ast.Import(names=[ast.alias(name="math", asname=None)]):
                pass
            case ast.ImportFrom(module="math"):
                pass  # its functions are already known by name
            case ast.Import() | ast.ImportFrom():
                raise SnippetError("nothing can be imported but math")
            case _:
                raise SnippetError(UNREADABLE)

    def _loops(self, body: list[ast.stmt], names: dict[str, Any]) -> bool:
        try:
            self.run(body, names)
        except _Continue:
            return True
        except _Break:
            return False
        return True

    def _assign(self, target: ast.expr, value: Any, names: dict[str, Any]) -> None:
        match target:
            case ast.Name(id=name):
                names[name] = value
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                values = bounded_list(value)
                if len(values) != len(parts):
                    raise SnippetError("ValueError")
                for part, one in zip(parts, values, strict=True):
                    self._assign(part, one, names)
            case ast.Subscript(value=owner, slice=place) if not isinstance(place, ast.Slice):
                items = self.value(owner, names)
                if not isinstance(items, list | dict):
                    raise SnippetError("TypeError")
                items[check_element(self.value(place, names))] = check_element(value)
                if len(items) > MAX_SIZE:
                    raise SnippetError("value too large")
            case _:
                raise SnippetError(UNREADABLE)

    def value(self, node: ast.expr, names: dict[str, Any]) -> Any:
        """Return an expression's value."""
        if not isinstance(node, ast.Constant | ast.Name):
            self._step()
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise SnippetError("nested too deeply")
        try:
            found = check_size(self._value(node, names))
            if isinstance(found, str | list | tuple | dict):
                self._steps += len(found) // _ITEMS_A_STEP
            return found
        finally:
            self._depth -= 1

    def _value(self, node: ast.expr, names: dict[str, Any]) -> Any:
        match node:
            case ast.Constant(value=str() | int() | float() | None as value):
                return value
            case ast.Name(id=name):
                return self._named(name, names)
            case ast.BinOp(left=left, op=op, right=right):
                return apply_operator(op, self.value(left, names), self.value(right, names))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
                return OPERATORS[type(op)](self.value(operand, names))
            case ast.BoolOp(op=op, values=values):
                value = None
                for one in values:
                    value = self.value(one, names)
                    if bool(value) is isinstance(op, ast.Or):
                        break
                return value
            case ast.Compare(left=left, ops=ops, comparators=others):
                value = self.value(left, names)
                for compare, other in zip(ops, others, strict=True):
                    right = self.value(other, names)
                    if not OPERATORS[type(compare)](value, right):
                        return False
                    value = right
                return True
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.value(body if self.value(test, names) else orelse, names)
            case ast.List(elts=parts):
                return [check_element(self.value(one, names)) for one in parts]
            case ast.Tuple(elts=parts):
                return tuple(check_element(self.value(one, names)) for one in parts)
            case ast.Dict(keys=keys, values=values) if None not in keys:
                pairs = zip(keys, values, strict=True)
                return {
                    check_element(self.value(k, names)): check_element(self.value(v, names))
                    for k, v in pairs
                    if k
                }
            case ast.Subscript(value=owner, slice=place):
                items = self.value(owner, names)
                if not isinstance(items, str | list | tuple | dict):
                    raise SnippetError("TypeError")
                return items[self._place(place, names)]
            case (
                ast.ListComp(elt=each, generators=[one])
                | ast.GeneratorExp(elt=each, generators=[one])
            ):
                return bounded_list(self._comprehended(each, one, names))
            case ast.Call(func=function, args=given, keywords=[]):
                return self._call(function, [self.value(one, names) for one in given], names)
            case ast.Call(func=ast.Name(id="sorted"), args=[items], keywords=[option]) if (
                option.arg == "reverse"
            ):
                found = self.value(items, names), self.value(option.value, names)
                return FUNCTIONS["sorted"](*found)
        raise SnippetError(UNREADABLE)

    def _named(self, name: str, names: dict[str, Any]) -> Any:
        for known in (names, self.names, CONSTANTS):
            if name in known:
                return known[name]
        raise SnippetError(f"no name {name[:20]}")

    def _place(self, place: ast.expr, names: dict[str, Any]) -> Any:
        if not isinstance(place, ast.Slice):
            return self.value(place, names)
        ends = (place.lower, place.upper, place.step)
        return slice(*(None if one is None else self.value(one, names) for one in ends))

    def _comprehended(
        self, each: ast.expr, one: ast.comprehension, names: dict[str, Any]
    ) -> Iterator[Any]:
        inner = dict(names)
        for item in bounded_list(self.value(one.iter, names)):
            self._assign(one.target, item, inner)
            if all(self.value(test, inner) for test in one.ifs):
                yield check_element(self.value(each, inner))

    def _call(self, function: ast.expr, given: list[Any], names: dict[str, Any]) -> Any:
        match function:
            case ast.Name(id="print"):
                return self.say(" ".join(map(text_of, given)))
            case ast.Name(id=name):
                own = names.get(name, self.names.get(name))
                if isinstance(own, _Function):
                    return self._call_own(own, given)
                if name in FUNCTIONS:
                    return FUNCTIONS[name](*given)
            case ast.Attribute(value=ast.Name(id="math"), attr=name) if name in FUNCTIONS:
                return FUNCTIONS[name](*given)
            case ast.Attribute(value=owner, attr=name):
                value = self.value(owner, names)
                if name in METHODS.get(type(value), ()):
                    return call_method(value, name, given)
        raise SnippetError("no such function")

    def _call_own(self, function: _Function, given: list[Any]) -> Any:
        if len(given) != len(function.parameters):
            raise SnippetError("TypeError")
        try:
            self.run(function.body, dict(zip(function.parameters, given, strict=True)))
        except _Return as returned:
            return returned.value
        return None
