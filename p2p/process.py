"""What commands share: settings with one-line errors, a data directory, logging, signals."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from p2p.data_dir import DataDirInUseError, lock_data_dir
from p2p.ipc.server import SOCKET_NAME, SocketPathError, check_socket_path
from p2p.net.host import ListenError
from p2p.net.identity import IdentityError
from p2p.net.swarm_key import SwarmKeyError
from p2p.peers.discovery import parse_bootstrap
from p2p.usage import UsageExit, fail
from shoal_settings.loader import Loaded, SettingsError, add_flags, describe, describe_text, load
from shoal_settings.schema import Command, Settings
from shoal_wire.errors import ManifestError

if TYPE_CHECKING:
    from trio_typing import TaskStatus

_MAX_NUMBERED = 64


class DataDirError(Exception):
    """A data directory that cannot be made or written; the text is one line."""


USAGE_ERRORS = (
    IdentityError,
    DataDirError,
    DataDirInUseError,
    SocketPathError,
    ListenError,
    ManifestError,
    SwarmKeyError,
)
"""What keeps a peer from starting and the user can mend: one line, exit code 2."""


def parse(
    command: Command,
    description: str,
    argv: Sequence[str],
    *,
    overrides: Mapping[str, Any] | None = None,
    shown_as: str = "",
) -> tuple[Loaded, bool]:
    """Parse flags and settings of `command`; the second value is the hidden `--supervised`.

    `shown_as` is the name of a command that reads the same settings as `command`.

    Raises:
        UsageExit: code 2 after one line on standard error, or 0 after `--print-config`.
    """
    name = shown_as or command
    parser = argparse.ArgumentParser(
        prog=f"shoal {name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_flags(parser, command)
    # Given by a parent shoal process: end when standard input does.
    parser.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    try:
        loaded = load(command, arguments, os.environ, overrides=overrides)
    except SettingsError as error:
        raise fail(name, str(error)) from None
    try:
        parse_bootstrap(loaded.settings.bootstrap + loaded.settings.dht_peer)
        if loaded.settings.judge != "none":
            parse_bootstrap((loaded.settings.judge,))
    except ValueError as error:
        raise fail(name, str(error)) from None
    if arguments.print_config:
        if loaded.settings.json_output:
            print(json.dumps(describe(loaded, command)))
        else:
            print(describe_text(loaded, command))
        raise UsageExit(0)
    return loaded, bool(arguments.supervised)


@contextlib.contextmanager
def own_data_dir(loaded: Loaded) -> Iterator[Settings]:
    """Lock the data directory and yield the settings with it.

    A directory the user named is theirs: in use means refused. The default one gives way to
    `…-2`, `…-3`, so that a second `shoal node` on the same machine just works.

    Raises:
        DataDirInUseError: the named directory is in use.
        DataDirError, SocketPathError: it cannot be used.
    """
    settings = loaded.settings
    candidates = [settings.data_dir]
    if loaded.origins["data_dir"] == "default":
        candidates += [
            settings.data_dir.with_name(f"{settings.data_dir.name}-{number}")
            for number in range(2, _MAX_NUMBERED)
        ]
    with contextlib.ExitStack() as stack:
        chosen = _enter_first_free(stack, candidates)
        check_socket_path(chosen / SOCKET_NAME)  # now, not after the node has joined its swarm
        yield settings.model_copy(update={"data_dir": chosen})


def _enter_first_free(stack: contextlib.ExitStack, candidates: Sequence[Path]) -> Path:
    for path in candidates[:-1]:
        try:
            stack.enter_context(locked(path))
        except DataDirInUseError:
            continue
        return path
    stack.enter_context(locked(candidates[-1]))
    return candidates[-1]


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Make `path` if need be, owner only, and own it while the context is open.

    Raises:
        DataDirInUseError, DataDirError: another process owns it, or it cannot be written.
    """
    with contextlib.ExitStack() as stack:
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            stack.enter_context(lock_data_dir(path))
        except OSError as error:
            raise DataDirError(f"cannot use {path} as a folder: {error.strerror}") from None
        yield


def start_logging(settings: Settings, who: str) -> None:
    """Log to standard error, so that standard output stays for results and JSON."""
    logging.basicConfig(
        level=settings.log_level.upper(),
        format=f"%(levelname)s {who}: %(message)s",
        stream=sys.stderr,
    )
    # The library narrates every connection, and its faults are counted by ours.
    for name in ("libp2p", "multiaddr", "zeroconf", "async_service", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


async def call_on_parent_end(callback: Callable[[], None]) -> None:
    """Call back when standard input ends: however the parent died, its pipe is closed."""
    stream = trio.lowlevel.FdStream(os.dup(0))
    async with stream:
        with contextlib.suppress(trio.BrokenResourceError):
            while await stream.receive_some(4096):
                pass
    callback()


async def call_on_signal(
    callback: Callable[[], None],
    *,
    task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Call back on SIGINT or SIGTERM; a second signal ends the process at once."""
    seen = 0
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            seen += 1
            if seen > 1:
                os._exit(130)
            callback()


def root_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error the user should hear of: the first that is not a group."""
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
