"""`shoal join`: takes an invitation from wherever it is, and out of the process list.

    shoal1…   ─▶ a pipe, and this program anew ─┐
    FILE      ──────────────────────────────────┼─▶ the invitation ─▶ `joined`: the node
    -         ─▶ a question, standard input ────┘

The arguments of a process can be read by every user of the machine for as long as it runs, and an
invitation may hold the key of a private swarm. So one that was given as an argument is not left
there. That the program starts anew is cheap: nothing of the node is imported before.
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
Run `shoal node` in the swarm that an invitation names: LINE is what `shoal invite` printed. It says
where the swarm is met and which one it is: another swarm at its addresses is refused. The key of a
private swarm, if the line has it, is written into the data directory for its owner alone.

  shoal join shoal1…                the embedded small model, no download
  shoal join line.txt               the line is in a file
  shoal join -                      asks for the line (or: standard input)
  shoal join shoal1… --rounds 100   with any flags of `shoal node`

The same line joins again. A line with a key is a password: given by a file or by -, it is neither
in the list of processes, which every user of a machine sees, nor in your shell's history."""

_ASKED: Final = "-"
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
    """Return what the invitation says as flags of `shoal node`; none of it can be another flag."""
    addresses = [f"--bootstrap={address}" for address in invite.addresses]
    return [*addresses, f"--swarm-id={invite.swarm.hex()}"]


def _taken_out(argv: Sequence[str]) -> tuple[str, list[str]]:
    """Return the invitation, which is the first argument but for one that looks like none."""
    at = next((n for n, word in enumerate(argv) if word.startswith(LOOKS_LIKE)), 0)
    return argv[at], [*argv[:at], *argv[at + 1 :]]


def _line(word: str) -> str:
    """Return the invitation that an argument is or leads to.

    Raises:
        InviteError: it leads to none.
        UsageExit: it is a flag.
    """
    if word == _ASKED:
        return _asked()
    if word.startswith(LOOKS_LIKE):
        return word
    if word.startswith("-"):
        raise fail("join", "the invitation comes first: shoal join LINE [flags of shoal node]")
    try:
        return read_at_most(Path(word), _MAX_FILE_BYTES).decode("ascii", "replace")
    except (OSError, ValueError):
        if word.startswith(LOOKS_LIKE[:-1]):  # of another version: that it is read as a line
            return word
        none = f"{word!r} is no invitation (one begins with {LOOKS_LIKE})"
        raise InviteError(f"{none}, and no file that has one") from None


def _asked() -> str:
    """Return the next line of standard input; at a terminal it is asked for."""
    if sys.stdin is None:
        return ""
    if sys.stdin.isatty():
        say("paste the invitation (shoal1…), and press Enter:", error=True)
    try:
        return sys.stdin.buffer.readline(_MAX_FILE_BYTES).decode("ascii", "replace")
    except OSError as error:
        raise InviteError(f"cannot read standard input ({error.strerror})") from None


def _leave_the_process_list(line: str, argv: Sequence[str], flags: Sequence[str]) -> None:
    """Start this program anew, as the same process, with the invitation on a pipe.

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
        "line", metavar="LINE", help="an invitation: one word, shoal1…; a file that has it; or -"
    )
    return parser
