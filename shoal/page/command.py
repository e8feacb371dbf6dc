"""`shoal page`: a web page of one peer, of several, or of a whole local swarm."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import trio

from shoal.nearby import running_node
from shoal.page.board import Board
from shoal.page.serving import BindError, Door, open_door, serve_board
from shoal_base.lines import guard_process, say, say_json
from shoal_base.page_file import PageHereError, ServedPage, own_page, served_page, tell_page
from shoal_p2p.endings import call_on_parent_end, call_on_signal
from shoal_settings.called import called
from shoal_settings.exits import EXIT_FAILED, EXIT_NO_NODE, EXIT_OK, UsageExit, fail
from shoal_settings.web_address import WebAddress

ORPHAN_S: Final = 600.0
"""How long a page stays whose peer was killed and does not come back."""
_LOOK_S: Final = 1.0  # a guess: the end of the peer is noticed so soon


def run(arguments: argparse.Namespace) -> int:
    """Run `shoal page` with its flags; return the exit code."""
    guard_process()
    try:
        folders: list[Path] = arguments.data_dir or [running_node()]
        for folder in folders:
            if not _is_folder(folder):
                why = f"there is no folder {folder}; name a peer's --data-dir"
                raise fail("page", why, EXIT_NO_NODE)
        address: WebAddress | None = arguments.http
        if address is None:
            raise fail("page", "--http none leaves nothing to serve; give HOST:PORT or auto")
        return _serve(folders, address, arguments)
    except UsageExit as end:
        return end.code
    except BindError as error:
        return fail("page", str(error)).code


def _serve(folders: Sequence[Path], address: WebAddress, arguments: argparse.Namespace) -> int:
    """Serve until told to stop; a peer's page is its folder's only one."""
    with contextlib.ExitStack() as stack:
        if arguments.supervised:
            try:
                stack.enter_context(own_page(folders[0]))
            except PageHereError:
                return _tell_of_other(folders[0])
            except OSError as error:
                reason = f"cannot use {folders[0]} ({error.strerror})"
                return fail("page", reason, EXIT_FAILED).code
        door = open_door(address, arguments.http_name)
        board = Board(folders, program=called())
        announce = partial(_announce, door, folders[0], arguments)
        trio.run(_run, board, door, announce, arguments.supervised)
    return EXIT_OK


async def _run(board: Board, door: Door, announce: Callable[[], None], supervised: bool) -> None:
    stopping = trio.Event()
    async with trio.open_nursery() as nursery:
        await nursery.start(call_on_signal, stopping.set)
        if supervised:
            nursery.start_soon(_end_after_peer, board, stopping.set)
        nursery.start_soon(board.run)
        await nursery.start(serve_board, board, door, stopping.wait)
        announce()
        await stopping.wait()
        nursery.cancel_scope.deadline = trio.current_time() + 2 * _LOOK_S
        nursery.cancel_scope.cancel()


async def _end_after_peer(board: Board, stop: Callable[[], None]) -> None:
    """End once the peer that started this page is gone, and none has answered here for long."""
    gone = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call_on_parent_end, gone.set)
        await gone.wait()
    since = trio.current_time()
    while True:
        left_s = max(since, board.answered_at) + ORPHAN_S - trio.current_time()
        if left_s <= 0:
            break
        await trio.sleep(left_s)
    stop()


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name that no disk takes
        return False


def _announce(door: Door, folder: Path, arguments: argparse.Namespace) -> None:
    if arguments.supervised:
        with contextlib.suppress(OSError):
            tell_page(folder, ServedPage(pid=os.getpid(), url=door.url))
    _say_url(door.url, arguments.json_output)


def _tell_of_other(folder: Path) -> int:
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
