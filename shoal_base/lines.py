"""Output and log lines of a process, in which control characters of untrusted text are escaped.

say, say_json ─▶ standard output, standard error
guard_process ─▶ every log record, every warning, the traceback that ends a process or a thread
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
import threading
import traceback
import warnings
from types import TracebackType
from typing import Any

from shoal_base.visible import acts, visible, visible_lines

_PLAIN_WARNING = warnings.formatwarning


def say(line: str = "", *, error: bool = False) -> None:
    """Print one line; on standard error if it is an error."""
    print(visible(line), file=sys.stderr if error else sys.stdout, flush=True)


def say_lines(text: str) -> None:
    """Print a text that may have several lines."""
    print("\n".join(visible_lines(text)), flush=True)


def say_json(value: Any, *, error: bool = False) -> None:
    """Print a value as one line of ASCII JSON; on standard error if it is an error."""
    written = _escaped(json.dumps(value))
    print(written, file=sys.stderr if error else sys.stdout, flush=True)


def readable_json(value: Any) -> str:
    """Return a value as one line of readable JSON: only control characters are escaped."""
    written = json.dumps(value, ensure_ascii=False)
    return "".join(_escaped(json.dumps(c)[1:-1]) if acts(c) else c for c in written)


class VisibleRecord(logging.LogRecord):
    """A log record whose message is one line without control characters.

    A traceback's lines are indented, so that none of them can be mistaken for a record.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        if self.exc_info and self.exc_info[0] is not None:
            self.exc_text = _indented("".join(traceback.format_exception(*self.exc_info)))
        if self.stack_info:
            self.stack_info = _indented(self.stack_info)

    def getMessage(self) -> str:  # noqa: N802 - logging's name
        """Return the message with its arguments."""
        return visible(super().getMessage())


def guard_process() -> None:
    """Escape every log record, warning and uncaught error of this process. Idempotent."""
    logging.setLogRecordFactory(VisibleRecord)
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _print_traceback
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _print_threads_traceback
    if warnings.formatwarning is _PLAIN_WARNING:
        warnings.formatwarning = _format_warning
    with contextlib.suppress(AttributeError, io.UnsupportedOperation, ValueError):
        # A character that the terminal's encoding lacks is escaped; by default it raises.
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _format_warning(*given: Any, **named: Any) -> str:
    return "\n".join(visible_lines(_PLAIN_WARNING(*given, **named)))


def _print_traceback(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    for line in visible_lines("".join(traceback.format_exception(kind, error, trace)).rstrip("\n")):
        print(line, file=sys.stderr)


def _print_threads_traceback(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_value is not None and failed.exc_type is not SystemExit:
        _print_traceback(failed.exc_type, failed.exc_value, failed.exc_traceback)


def _escaped(ascii_json: str) -> str:
    """Escape DEL, the one ASCII control character that JSON allows."""
    return ascii_json.replace("\x7f", "\\u007f")


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in visible_lines(text.rstrip("\n")))
