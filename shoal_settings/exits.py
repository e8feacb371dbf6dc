"""Exit codes, and one line for the user at a process's end. Imports nothing heavy.

The codes are an interface between processes: a node reads its trainer's, scripts read all of them.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from shoal_base.bounded import LINE_CHARS
from shoal_base.lines import say, say_json

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
"""Exit code if a request failed."""
EXIT_USAGE: Final = 2
"""Exit code for a user's error (a flag, a setting, a folder in use): a retry would fail, too."""
EXIT_NO_NODE: Final = 3
"""Exit code of commands for a running node or its data: there is no node in that folder."""
EXIT_DIVERGED: Final = 3
"""Exit code of a trainer, which needs no node at its start: its loss stays non-finite."""
EXIT_INTERRUPTED: Final = 128 + signal.SIGINT
"""Exit code after Ctrl-C or a second signal, as in shells."""


class UsageExit(Exception):  # noqa: N818 - an exit, not an error
    """Ends the command with a code after its message has been printed."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def fail(command: str, message: str, code: int = EXIT_USAGE) -> UsageExit:
    """Print one line for the user and return the exit to raise."""
    say_error(f"shoal {command}".rstrip(), message)
    return UsageExit(code)


_SHOWN_CHARS: Final = LINE_CHARS // 2
"""Most characters shown of an overlong word, so that an error still fits one line."""
_LONG_WORD: Final = re.compile(r"\S{1000,}")
"""Longer than any meaningful address, path or name: a typing mistake."""
_as_json: ContextVar[bool] = ContextVar("_as_json", default=False)


@contextmanager
def errors_as_json(wanted: bool) -> Iterator[None]:
    """Print errors as JSON objects within the context, if `wanted`."""
    token = _as_json.set(wanted)
    try:
        yield
    finally:
        _as_json.reset(token)


def say_error(program: str, message: str) -> None:
    """Print an error on standard error: a line for people, or an object for programs."""
    message = _LONG_WORD.sub(lambda word: f"{word[0][:_SHOWN_CHARS]}…", message)
    if not _as_json.get():
        say(f"{program}: {message}", error=True)
        return
    wrong, _, remedy = message.partition("; ")
    say_json({"schema_version": 1, "error": wrong, "remedy": remedy}, error=True)
