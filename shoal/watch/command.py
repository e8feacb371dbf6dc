"""`shoal watch`: a live view of a node in a terminal.

LivePeer (a thread: a node may be slow) ─ latest `ShownPeer` ─▶ frame ─▶ rich.Live
q, Ctrl-C, SIGTERM, the terminal's end ─▶ the screen is as it was before
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence

from rich.live import Live

from shoal.nearby import need_folder, running_node
from shoal.view.live import LivePeer
from shoal.watch.frame import frame
from shoal.watch.keys import Keys
from shoal_base.lines import say_json
from shoal_base.node_folders import NODE_FOLDER
from shoal_base.output import NoReader
from shoal_base.terminal import Terminal
from shoal_base.waits import POLL_S, REPLY_S, SHORT_DEADLINE_S
from shoal_ipc.answers.form import to_json
from shoal_settings.called import called
from shoal_settings.exits import EXIT_NO_NODE, EXIT_OK
from shoal_settings.parser import Parser, data_dir_flag

DESCRIPTION = """\
Show a running node, bootstrap peer or judge live in this terminal: health, progress, publishers,
benefit and cost, rollouts, refusals and next steps. q or Ctrl-C ends the view, not the node. While
the node is down, its last numbers stay, and the view reconnects.

  shoal watch                          the node that runs here
  shoal watch --data-dir .shoal/node

Without a terminal to write to and read keys from it prints one frame and ends; with --json one
object, with schema_version.
Exit codes: 0 ok, 2 usage, 3 no node there (of one frame)."""

DRAW_SECONDS = 0.25  # delay of a key press; a guess


def main(argv: Sequence[str]) -> int:
    """Run `shoal watch`; return the exit code."""
    arguments = _parser().parse_args(argv)
    data_dir = running_node(arguments.data_dir)
    peer, console = LivePeer("watched", data_dir, program=called()), Terminal()
    try:
        if arguments.data_dir is not NODE_FOLDER:
            need_folder("watch", data_dir)
        if arguments.json or not (console.is_terminal and sys.stdin.isatty()):
            return _once(console, peer, as_json=arguments.json)
        return _live(console, peer)
    except (KeyboardInterrupt, EOFError):
        return EXIT_OK


def _once(console: Terminal, peer: LivePeer, *, as_json: bool) -> int:
    """Print one frame, after doctor has answered or its deadline has passed."""
    deadline = time.monotonic() + REPLY_S
    seen = peer.poll()
    while (
        seen.answers.down_since_unix is None
        and not seen.answers.doctor
        and time.monotonic() < deadline
    ):
        time.sleep(POLL_S)
        seen = peer.poll()
    peer.follower.close()
    if as_json:
        say_json(to_json(seen.shown))
    else:
        console.print(frame(seen, width=console.width, height=None), soft_wrap=True)
    return EXIT_NO_NODE if seen.shown.health.state == "down" else EXIT_OK


def _live(console: Terminal, peer: LivePeer) -> int:
    pause = threading.Event()
    signal.signal(signal.SIGTSTP, lambda *_: pause.set())
    peer.start()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(NoReader):  # the terminal was closed before the first key
        while _shown_until_left(console, peer, pause):
            pause.clear()
            os.kill(os.getpid(), signal.SIGSTOP)  # the shell has the terminal until `fg`
    return EXIT_OK


def _shown_until_left(console: Terminal, peer: LivePeer, pause: threading.Event) -> bool:
    """Show it until a key ends it, or until Ctrl-Z; return whether to continue afterwards."""
    with (
        Keys(sys.stdin) as keys,
        Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live,
    ):
        while "q" not in keys.pressed(DRAW_SECONDS):
            if pause.is_set():
                return True
            if peer.known is not None:
                seen, (width, height) = peer.known, console.size
                foot = _foot(time.time() - seen.shown.at_unix)
                screen = frame(seen, width=width, height=height, foot=foot)
                live.update(screen, refresh=True)
    return False


def _foot(age_s: float) -> str:
    old = f"it has not answered for {age_s:.0f} s. " if age_s >= SHORT_DEADLINE_S else ""
    return f"{old}q or Ctrl-C ends this view, not the node"


def _parser() -> Parser:
    parser = Parser(prog="shoal watch", description=DESCRIPTION)
    data_dir_flag(parser, "the node's folder (.shoal/node, or the one started last)")
    parser.add_argument("--json", action="store_true", help="one JSON object, with schema_version")
    return parser
