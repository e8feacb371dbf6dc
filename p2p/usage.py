"""How commands end: exit codes, and one line for the user. Imports nothing heavy."""

from __future__ import annotations

import sys

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_NO_NODE = 0, 1, 2, 3


class UsageExit(Exception):  # noqa: N818 - a way out, not a fault
    """Ends the command with a code after its message has been printed."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def fail(command: str, message: str, code: int = 2) -> UsageExit:
    """Print one line for the user and return the exit to raise."""
    print(f"shoal {command}: {message}", file=sys.stderr)
    return UsageExit(code)
