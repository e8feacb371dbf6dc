"""Runs the web page of a peer as a child process.

    peer ready ─▶ `shoal page --supervised` ─its url─▶ one line        peer stops ─▶ SIGTERM
                       a pipe as standard input: closes when the peer is gone

The page is a separate process that only knows the folder's name, so no browser request can reach
the peer's event loop or its key. If a peer is killed its page remains for some minutes; the next
peer of the folder takes it over.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

from shoal_base.bounded import PIECE_BYTES
from shoal_base.children import START_S, environment, python
from shoal_base.page_file import served_page
from shoal_base.waits import AT_ONCE_S, SHORT_DEADLINE_S
from shoal_p2p.output_tail import OutputTail
from shoal_p2p.trainer_child import ending
from shoal_settings.web_address import NONE

if TYPE_CHECKING:
    from trio_typing import TaskStatus

log = logging.getLogger(__name__)

_PIPE: Final = subprocess.PIPE


async def run_page(
    folder: Path,
    http: str,
    say_url: Callable[[str], None],
    *,
    name: str = "",
    task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the page of the peers in `folder` until cancelled; `say_url` gets its address.

    `http` and `name` are the settings `http` and `http_name`. If the page cannot start, or ends,
    this is logged and has no other effect.
    """
    task_status.started()
    if http == NONE:
        return
    command = python("-m", "shoal", "page", "--supervised", "--json")
    command += ["--data-dir", str(folder), "--http", http]
    command += ["--http-name", name] if name else []
    try:
        process = await trio.lowlevel.open_process(
            command,
            stdin=_PIPE,
            stdout=_PIPE,
            stderr=_PIPE,
            env=environment(),
            start_new_session=True,
        )
    except OSError as error:
        log.warning("no web page: %s", error.strerror)
        return
    try:
        await _follow(process, say_url)
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            await _end(process, folder)


async def _follow(process: trio.Process, say_url: Callable[[str], None]) -> None:
    """Pass on the page's first line, and read its output until it ends.

    A pipe that is not read blocks its writer once it is full.
    """
    words = OutputTail()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_listen, process.stderr, words)
        url = None
        with trio.move_on_after(START_S):
            url = _url_in(await _first_line(process.stdout))
        if url is not None:
            say_url(url)
            nursery.start_soon(_pass_over, process.stdout)
        else:  # it is of no use: it has the time that it takes to say why
            nursery.cancel_scope.deadline = trio.current_time() + AT_ONCE_S
        await process.wait()
        # Another process may hold its pipes.
        nursery.cancel_scope.deadline = trio.current_time() + AT_ONCE_S
    _say_ended(url, process.returncode, words.cause())


def _say_ended(url: str | None, code: int | None, cause: str) -> None:
    if url is None:
        log.warning("no web page: %s", cause or "it did not start")
    elif code:
        log.warning("the web page has ended: %s", cause or ending(code))


async def _listen(stream: Any, words: OutputTail) -> None:
    while part := await stream.receive_some(4096):
        words.feed(part)


async def _pass_over(stream: Any) -> None:
    while await stream.receive_some(4096):
        pass


async def _first_line(stream: Any) -> bytes:
    line = b""
    while b"\n" not in line and len(line) < PIECE_BYTES:
        part = await stream.receive_some(4096)
        if not part:
            break
        line += part
    return line.partition(b"\n")[0]


def _url_in(line: bytes) -> str | None:
    try:
        return str(json.loads(line)["url"])
    except (ValueError, KeyError, TypeError):
        return None


async def _end(process: trio.Process, folder: Path) -> None:
    """Stop the page, even if an earlier peer of this folder started it."""
    if process.poll() is None:
        process.terminate()
        with trio.move_on_after(SHORT_DEADLINE_S):
            await process.wait()
        if process.poll() is None:
            process.kill()
            await process.wait()
    left = await trio.to_thread.run_sync(served_page, folder)
    if left is not None:
        with contextlib.suppress(OSError):
            os.kill(left.pid, signal.SIGTERM)
