"""Runs a serving process: node, bootstrap peer or judge.

    flags ─▶ data directory, locked ─▶ identity ─▶ make(…).run() ─▶ exit code
                                           ▲            │ another manifest
                                           └────────────┘

A signal, or with `--supervised` the end of standard input, asks the peer to stop; it closes in
order. It continues if its terminal closes. Errors that the user can fix end it with one line.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import trio

from shoal_base.collector import spare_collector
from shoal_base.lines import guard_process, say, say_json
from shoal_base.log_file import LogLines, log_to_console, log_to_file
from shoal_base.output import outlive_the_terminal
from shoal_base.private import private
from shoal_ipc.client import SOCKET_NAME
from shoal_p2p.collector import give_memory_back
from shoal_p2p.data_dir import IDENTITY_FILE, DataDirInUseError, lock_data_dir
from shoal_p2p.flags import ParsedFlags
from shoal_p2p.ipc.server import SocketPathError, check_socket_path
from shoal_p2p.net.host import ListenError
from shoal_p2p.net.identity import Identity, IdentityError, load_or_create_identity
from shoal_p2p.net.swarm_key import SwarmKeyError
from shoal_p2p.page_child import run_page
from shoal_p2p.peer_runner import PeerRunner
from shoal_p2p.peers.run_start import check_run
from shoal_p2p.shutdown import call_on_parent_end, call_on_signal
from shoal_p2p.swarm_node import SwarmNode
from shoal_p2p.threads import let_the_loop_in
from shoal_settings.default_folder import default_folders_without_model
from shoal_settings.exits import EXIT_FAILED, EXIT_OK, UsageExit, fail
from shoal_settings.loader import Loaded, defaults_line_of
from shoal_settings.schema import Settings
from shoal_settings.started_with import StartedWithError, check_command, save_started_with
from shoal_tasks.errors import FamilyError
from shoal_tasks.lint.start import lint_at_start
from shoal_tasks.swarm import query_servers
from shoal_tasks.worker.process import accept_weak_sandbox
from shoal_wire.errors import ManifestError

log = logging.getLogger(__name__)


class DataDirError(Exception):
    """A data directory that cannot be created or written; the text is one line."""


USAGE_ERRORS = (
    IdentityError,
    DataDirError,
    DataDirInUseError,
    SocketPathError,
    ListenError,
    FamilyError,
    ManifestError,
    SwarmKeyError,
    StartedWithError,
)
"""Errors that keep a peer from starting and that the user can fix: one line, exit code 2."""


class Life(Protocol):
    """A peer from its start to its end."""

    def stop(self) -> None:
        """Ask it to end, in order."""


class Joined(Protocol):
    """A peer that is ready for connections."""

    @property
    def member(self) -> SwarmNode:
        """It as a member of the swarm."""


L = TypeVar("L", bound=Life)
J = TypeVar("J", bound=Joined)


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving(Generic[L, J]):
    """A command that runs a peer until it ends."""

    make: Callable[..., L]
    """Creates the peer from `identity`, `settings` and `on_ready`, called once it is ready."""
    run: Callable[[L, Settings], Awaitable[int | None]]
    """Runs a peer to its end; returns the exit code, or None for a restart with a new peer."""
    announce: Callable[[J, Settings], Iterable[str]]
    """Returns the lines for people when it is ready."""
    facts: Callable[[J], Mapping[str, Any]] = lambda _peer: {}
    """Returns further facts for programs, in addition to its id and addresses."""
    failures: tuple[type[Exception], ...]
    """Errors that end it with one line and exit code 1."""
    folders: Callable[[Settings], Iterable[Path]] = default_folders_without_model
    """Folders for its data when none is named; it takes the first that is free."""


def serve(serving: Serving[L, J], given: ParsedFlags) -> int:
    """Run a serving command; return the exit code."""
    name, loaded = given.flags.name, given.loaded
    try:
        lines = start_logging(loaded.settings, name)
        with own_data_dir(loaded, serving.folders) as settings:
            log_path = settings.data_dir / f"{name}.log"
            outlive_the_terminal(partial(say_terminal_gone, log_path))
            with log_to_file(log_path, lines):
                trains = given.flags.settings_of == "node" and settings.role != "observe"
                defaults_line = defaults_line_of(loaded) if trains else ""
                check_command(settings.data_dir, name)
                identity = load_or_create_identity(settings.data_dir / IDENTITY_FILE)
                query_servers(settings.task_files)
                check_run(settings, loaded.origins, identity.peer_id)
                save_started_with(loaded, settings.data_dir, name, given.flags.settings_of)
                return _serve_in(
                    settings, serving, identity, defaults_line, supervised=given.supervised
                )
    except UsageExit as end:
        return end.code
    except USAGE_ERRORS as error:
        return fail(name, str(error)).code
    except serving.failures as error:
        return fail(name, str(error), EXIT_FAILED).code


async def run_until_stopped(peer: PeerRunner[Any], _settings: Settings) -> int | None:
    """Run it; None asks for a new start, as `Serving.run` has it."""
    return None if await peer.run() else EXIT_OK


def _serve_in(
    settings: Settings,
    serving: Serving[L, J],
    identity: Identity,
    defaults_line: str,
    *,
    supervised: bool,
) -> int:
    """Run peers one after another until one does not ask for a new start; `defaults_line` once it
    is up."""
    if settings.weak_sandbox:
        accept_weak_sandbox()
    lint_at_start(settings.task_files)
    spare_collector()
    let_the_loop_in()
    code = None
    while code is None:
        try:
            code = trio.run(_serve_once, serving, settings, identity, defaults_line, supervised)
        except BaseExceptionGroup as group:
            raise root_error(group) from None
    return code


async def _serve_once(
    serving: Serving[L, J],
    settings: Settings,
    identity: Identity,
    defaults_line: str,
    supervised: bool,
) -> int | None:
    is_ready = trio.Event()

    def on_ready(peer: J) -> None:
        _say_ready(serving, settings, peer)
        if defaults_line:
            log.info("%s", defaults_line)
        is_ready.set()

    peer = serving.make(identity=identity, settings=settings, on_ready=on_ready)
    async with trio.open_nursery() as nursery:
        await nursery.start(call_on_signal, peer.stop)
        nursery.start_soon(give_memory_back)
        nursery.start_soon(_show_page, settings, is_ready)
        if supervised:
            nursery.start_soon(call_on_parent_end, peer.stop)
        code = await serving.run(peer, settings)
        nursery.cancel_scope.cancel()
    return code


async def _show_page(settings: Settings, is_ready: trio.Event) -> None:
    """Serve the peer's page from the moment it is ready, and say where."""
    await is_ready.wait()
    say = partial(say_page, settings.json_output)
    await run_page(settings.data_dir, settings.http, say, name=settings.http_name)


def say_page(as_json: bool, url: str) -> None:
    """Say where a page is."""
    if as_json:
        say_json({"event": "page", "url": url})
    else:
        say(f"web page: {url}")


def _say_ready(serving: Serving[L, J], settings: Settings, peer: J) -> None:
    if not settings.json_output:
        for line in serving.announce(peer, settings):
            say(line)
        return
    member, manifest = peer.member, peer.member.manifest
    ready = {
        "event": "ready",
        "schema_version": 1,
        "peer_id": member.peer_id,
        "addresses": list(member.host.listen_addrs()),
        "swarm": {"name": manifest.swarm_name, "digest": manifest.digest.hex()},
        "data_dir": str(settings.data_dir),
        **serving.facts(peer),
    }
    say_json(ready)


@contextlib.contextmanager
def own_data_dir(
    loaded: Loaded,
    folders: Callable[[Settings], Iterable[Path]] = default_folders_without_model,
) -> Iterator[Settings]:
    """Lock the data directory and yield the settings with it.

    A directory the user named is theirs: in use means refused. The default one gives way to the
    next of `folders`, so that a second `shoal node` on the same machine just works.

    Raises:
        DataDirInUseError: the named directory is in use.
        DataDirError, SocketPathError: it cannot be used.
    """
    settings = loaded.settings
    is_default = loaded.origins["data_dir"] == "default"
    candidates = list(folders(settings)) if is_default else [settings.data_dir]
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
            stack.enter_context(private(path))
            stack.enter_context(lock_data_dir(path))
        except OSError as error:
            raise DataDirError(f"cannot use {path} as a folder: {error.strerror}") from None
        yield


def start_logging(settings: Settings, who: str) -> LogLines:
    """Log to standard error; return how its lines look.

    Nothing that a record quotes acts on a terminal: `shoal_base.lines`.
    """
    guard_process()
    lines = LogLines(who, as_json=settings.log_json)
    log_to_console(settings.log_level, lines)
    # The library logs every connection; its errors are counted by this package.
    for name in ("libp2p", "multiaddr", "zeroconf", "async_service", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return lines


def say_terminal_gone(log_path: Path) -> None:
    """Say in the log what a person who comes back wants to know."""
    log.warning(
        "the terminal is gone, this process continues: the log is %s, `kill %d` ends this process",
        log_path,
        os.getpid(),
    )


def root_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error the user should hear of: the first that is not a group."""
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
