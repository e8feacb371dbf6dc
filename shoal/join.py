"""`shoal join`: reads an invitation, and keeps it out of the process list.

    shoal1…   ─▶ a pipe, this program restarted ─┐
    FILE      ──────────────────────────────────┼─▶ the invitation ─▶ `joined`: the node
    -         ─▶ a question, standard input ────┘

Every user of a machine can read the arguments of a running process, and an invitation may hold the
key of a private swarm. If it was given as an argument, the program restarts itself and reads it
from a pipe. Restarting is cheap, since nothing of the node has been imported yet.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from shoal_base.children import environment, python
from shoal_base.files import read_at_most
from shoal_base.lines import say
from shoal_p2p.__main__ import FLAGS
from shoal_settings.exits import fail
from shoal_settings.parser import Parser
from shoal_wire.invite import LOOKS_LIKE, MAX_LINE_CHARS, Invite, InviteError, decode_invite

DESCRIPTION = """\
Run `shoal node` in the swarm that an invitation names: LINE is what `shoal
invite` printed. It holds addresses of the swarm and its digest: another swarm at these addresses is
refused. If it holds the key of a private swarm, the key is written into the data directory,
readable by its owner alone.

  shoal join shoal1…                the embedded small model, no download
  shoal join line.txt               the line is in a file
  shoal join -                      asks for the line (or: standard input)
  shoal join shoal1… --rounds 100   with any flags of `shoal node`

The same line joins again later. A line with a key is a password: read from a file or by -, it
appears neither in the list of processes nor in your shell's history."""

_FROM_STDIN: Final = "-"
_MAX_FILE_BYTES: Final = 2 * MAX_LINE_CHARS
"""An invitation with blank lines around it."""


def main(argv: Sequence[str]) -> int:
    """Run `shoal join`; return the exit code."""
    if not argv or argv[0] in ("-h", "--help"):
        _parser().parse_args(argv[:1])
    word, flags = _taken_out(argv)
    try:
        line = _line(word).strip()
        invite = decode_invite(line)
    except InviteError as error:
        return fail("join", str(error)).code
    if word.startswith(LOOKS_LIKE):
        _leave_the_process_list(line, argv, flags)
    given = FLAGS.parse([*_flags(invite), *flags])
    from shoal.joined import run_joined  # late: libp2p takes over a second

    return run_joined(invite, given)


def _flags(invite: Invite) -> list[str]:
    """Return the invitation as flags of `shoal node`; its values cannot form other flags."""
    addresses = [f"--bootstrap={address}" for address in invite.addresses]
    return [*addresses, f"--swarm-id={invite.swarm.hex()}"]


def _taken_out(argv: Sequence[str]) -> tuple[str, list[str]]:
    """Return the invitation and the flags; without one, the first argument stands for it."""
    at = next((n for n, word in enumerate(argv) if word.startswith(LOOKS_LIKE)), 0)
    return argv[at], [*argv[:at], *argv[at + 1 :]]


def _line(word: str) -> str:
    """Return the invitation that an argument is or points to.

    Raises:
        InviteError: there is none.
        UsageExit: it is a flag.
    """
    if word == _FROM_STDIN:
        return _read_line()
    if word.startswith(LOOKS_LIKE):
        return word
    if word.startswith("-"):
        raise fail("join", "the invitation comes first: shoal join LINE [flags of shoal node]")
    try:
        return read_at_most(Path(word), _MAX_FILE_BYTES).decode("ascii", "replace")
    except (OSError, ValueError):
        if word.startswith(LOOKS_LIKE[:-1]):  # another version: decoding names it
            return word
        none = f"{word!r} is not an invitation (which begins with {LOOKS_LIKE})"
        raise InviteError(f"{none}, and not a file that contains one") from None


def _read_line() -> str:
    """Return the next line of standard input, after a prompt if it is a terminal."""
    if sys.stdin is None:
        return ""
    if sys.stdin.isatty():
        say("paste the invitation (shoal1…), and press Enter:", error=True)
    try:
        return sys.stdin.buffer.readline(_MAX_FILE_BYTES).decode("ascii", "replace")
    except OSError as error:
        raise InviteError(f"cannot read standard input ({error.strerror})") from None


def _leave_the_process_list(line: str, argv: Sequence[str], flags: Sequence[str]) -> None:
    """Restart this program in the same process, with the invitation on a pipe.

    Returns only where `argv` are not the arguments of this process.
    """
    given = sys.orig_argv
    if given[-len(argv) :] != list(argv):
        return
    reading, writing = os.pipe()
    os.write(writing, line.encode())  # a pipe holds more than an invitation has
    os.set_inheritable(reading, True)
    before = given[1 : -len(argv)]
    command = python(*before, f"/dev/fd/{reading}", *flags)
    os.execve(command[0], command, environment())


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="shoal join",
        description=DESCRIPTION,
        usage="shoal join LINE [flags of shoal node]",
    )
    parser.add_argument(
        "line", metavar="LINE", help="an invitation (shoal1…), a file that contains one, or -"
    )
    return parser
