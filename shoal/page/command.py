"""`shoal page`: a web page of one peer, of several, or of a whole local swarm."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from shoal.nearby import need_folder, running_node, swarm_of
from shoal_base.lines import guard_process, say, say_json
from shoal_base.page_file import PageHereError, ServedPage, own_page, served_page, tell_page
from shoal_settings.called import called
from shoal_settings.exits import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, UsageExit, fail
from shoal_settings.parser import Parser, path
from shoal_settings.web_address import AUTO, WebAddress, parse_web_address, parse_web_name

if TYPE_CHECKING:
    from shoal.page.board import Board

DESCRIPTION = """\
Serve a web page of the node in a folder: health, learning, publishers, benefit and cost, rollouts,
refusals and next steps. Nodes, bootstraps, judges and swarms start one by themselves (--no-http:
none). The page is read-only, requests views over the sockets in the folders, and outlives the node.

  shoal page                           the node that runs here
  shoal page --data-dir .shoal/swarm   all peers of a local swarm
  shoal page --data-dir A --data-dir B   these two
  shoal page --http 0.0.0.0:7462       for other machines, too

The page opens only with the token in the printed address."""

ORPHAN_S: Final = 600.0
"""Seconds that a page stays after its peer was killed and has not restarted."""


def main(argv: Sequence[str]) -> int:
    """Run `shoal page`; return the exit code."""
    arguments = _parser().parse_args(argv)
    guard_process()
    try:
        folders: list[Path] = arguments.data_dir or [swarm_of(running_node())]
        for folder in folders:
            need_folder("page", folder)
        address: WebAddress | None = arguments.http
        if address is None:
            raise fail("page", "--http none leaves nothing to serve; give HOST:PORT or auto")
        return _serve(folders, address, arguments)
    except UsageExit as end:
        return end.code


def _serve(folders: Sequence[Path], address: WebAddress, arguments: argparse.Namespace) -> int:
    """Serve until interrupted; a peer starts at most one page for its folder."""
    from shoal.page.board import Board  # imported here: `--help` needs none of it
    from shoal.page.server import BindError, PageServer

    with contextlib.ExitStack() as stack:
        if arguments.supervised:
            try:
                stack.enter_context(own_page(folders[0]))
            except PageHereError:
                return _say_url_of_other(folders[0])
            except OSError as error:
                reason = f"cannot use {folders[0]} ({error.strerror})"
                return fail("page", reason, EXIT_FAILED).code
        board = Board(folders, program=called())
        try:
            server = stack.enter_context(PageServer(board, address, arguments.http_name))
        except BindError as error:
            return fail("page", str(error)).code
        threading.excepthook = _end_by
        with contextlib.suppress(KeyboardInterrupt):
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, _interrupt)
            board.start()
            threading.Thread(target=server.serve_forever, daemon=True, name="page").start()
            _announce(server.url, folders[0], arguments)
            _stay(board, supervised=arguments.supervised)
        server.shutdown()
    return EXIT_OK


def _stay(board: Board, *, supervised: bool) -> None:
    """Wait until interrupted.

    A supervised page waits until the peer that started it has ended, and no peer has answered for
    `ORPHAN_S`.
    """
    while not supervised:
        time.sleep(ORPHAN_S)
    while os.read(0, 4096):  # however the peer dies, its pipe is closed
        pass
    since = time.monotonic()
    while (left_s := max(since, board.answered_at) + ORPHAN_S - time.monotonic()) > 0:
        time.sleep(left_s)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Interrupt the main thread; a second signal ends the process immediately."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(EXIT_INTERRUPTED))
    raise KeyboardInterrupt


def _end_by(failed: threading.ExceptHookArgs) -> None:
    """End the process after an unexpected error in a thread: the page would show old numbers."""
    sys.excepthook(failed.exc_type, failed.exc_value or failed.exc_type(), failed.exc_traceback)
    sys.stderr.flush()
    os._exit(EXIT_FAILED)


def _announce(url: str, folder: Path, arguments: argparse.Namespace) -> None:
    if arguments.supervised:
        with contextlib.suppress(OSError):
            tell_page(folder, ServedPage(pid=os.getpid(), url=url))
    _say_url(url, arguments.json_output)


def _say_url_of_other(folder: Path) -> int:
    found = served_page(folder)
    if found is None:
        return fail("page", f"another page of {folder} is just starting", EXIT_FAILED).code
    _say_url(found.url, as_json=True)
    return EXIT_OK


def _say_url(url: str, as_json: bool) -> None:
    if as_json:
        say_json({"event": "ready", "schema_version": 1, "url": url})
    else:
        say(f"page: {url}")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="shoal page", description=DESCRIPTION)
    parser.add_argument(
        "--data-dir",
        dest="data_dir",
        metavar="DIR",
        type=path,
        action="append",
        help="a peer's folder, or a swarm's; repeatable (.shoal/node, or the node used last)",
    )
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        type=parse_web_address,
        default=AUTO,
        help="where to serve (default: auto, which is 127.0.0.1:7462 or a free port)",
    )
    parser.add_argument(
        "--http-name",
        metavar="NAME",
        type=parse_web_name,
        default=None,
        help="name by which browsers reach it, or https://NAME of a proxy before it",
    )
    parser.add_argument(
        "--json",
        dest="json_output",
        action="store_true",
        help="one JSON object a line, with schema_version",
    )
    # Given by the peer that starts it: end when standard input does, and some time has passed.
    parser.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)
    return parser
