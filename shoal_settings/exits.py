"""Exit codes, and one line for the user at a process's end. Imports nothing heavy.

The codes are an agreement between processes: a node reads its trainer's, scripts read everybody's.
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
"""Exit code if the request could not be done."""
EXIT_USAGE: Final = 2
"""The user can mend it (a flag, a setting, a folder in use); the same again would end the same."""
EXIT_NO_NODE: Final = 3
"""Exit code of commands that ask a running node, or read its data: no node in that folder."""
EXIT_DIVERGED: Final = 3
"""Exit code of a trainer, which asks for no node at its start: its numbers are not finite."""
EXIT_INTERRUPTED: Final = 128 + signal.SIGINT
"""Cut off by Ctrl-C or a second signal, by the number that shells give it."""


class UsageExit(Exception):  # noqa: N818 - a way out, not a fault
    """Ends the command with a code after its message has been printed."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def fail(command: str, message: str, code: int = EXIT_USAGE) -> UsageExit:
    """Print one line for the user and return the exit to raise."""
    say_error(f"shoal {command}".rstrip(), message)
    return UsageExit(code)


_SHOWN_CHARS: Final = LINE_CHARS // 2
"""Characters of a word without end: with the sentence around it they are a line of an error."""
_LONG_WORD: Final = re.compile(r"\S{1000,}")
"""Longer than any address, path or name that means something: what was typed by mistake."""
_as_json: ContextVar[bool] = ContextVar("_as_json", default=False)


@contextmanager
def errors_as_json(wanted: bool) -> Iterator[None]:
    """Say errors as JSON objects, if that is wanted, while the context is open."""
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
