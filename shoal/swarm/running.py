"""`shoal swarm`: a bootstrap and N nodes on this machine, with a live table.

bootstrap process ─address─▶ node processes ─their sockets─▶ table, every second
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Literal

import trio
from rich.live import Live
from rich.table import Table

from shoal.counted import SAY_EVERY_SECONDS
from shoal.started_peer import PeerEndedError, StartedPeer
from shoal.swarm.isolation import bootstrap_settings, key_of_swarm, node_settings
from shoal.swarm.members import ChildNode, members_table, next_commands, progress_line
from shoal_base.extras import missing_for_trainer
from shoal_base.lines import say, say_json
from shoal_base.log_file import CHILD_LOG
from shoal_base.output import outlive_the_terminal
from shoal_base.terminal import Terminal
from shoal_base.waits import RETRY_S
from shoal_ipc.answers.form import to_json
from shoal_p2p.data_dir import IDENTITY_FILE, DataDirInUseError
from shoal_p2p.flags import ParsedFlags
from shoal_p2p.net.identity import IdentityError, load_or_create_identity
from shoal_p2p.net.swarm_key import SwarmKeyError
from shoal_p2p.page_child import run_page
from shoal_p2p.peers.run_start import check_run
from shoal_p2p.process import DataDirError, locked, root_error
from shoal_p2p.shutdown import call_on_signal
from shoal_settings.called import called
from shoal_settings.default_folder import default_folder
from shoal_settings.early import early_refusal
from shoal_settings.exits import EXIT_FAILED, EXIT_OK, fail
from shoal_settings.loader import defaults_line_of, to_flags
from shoal_settings.schema import Settings
from shoal_settings.started_with import StartedWithError, check_command, save_started_with
from shoal_wire.errors import ManifestError

_USAGE_ERRORS: Final = (
    DataDirError,
    DataDirInUseError,
    ManifestError,
    StartedWithError,
    SwarmKeyError,
)


def run(given: ParsedFlags) -> int:
    """Run `shoal swarm`; return the exit code."""
    loaded, settings = given.loaded, given.loaded.settings
    try:
        if (missing := missing_for_trainer()) is not None:
            raise fail("swarm", missing)
        if (refused := early_refusal(settings)) is not None:
            raise fail("swarm", refused)
        outlive_the_terminal()
        if not settings.json_output and (text := defaults_line_of(loaded)):
            say(text)
        if loaded.origins["data_dir"] == "default":
            settings = settings.model_copy(update={"data_dir": default_folder(settings)})
        with locked(settings.data_dir):
            check_command(settings.data_dir, "swarm")
            _check_run(settings, loaded.origins)
            save_started_with(loaded, settings.data_dir, "swarm", "swarm")
            return trio.run(_run, settings, key_of_swarm(settings))
    except _USAGE_ERRORS as error:
        return fail("swarm", str(error)).code


def _check_run(settings: Settings, origins: Mapping[str, str]) -> None:
    """Refuse a swarm other than the folder's before a process starts. Raises RunMismatchError."""
    own = bootstrap_settings(settings, settings.swarm_key)
    if own.data_dir.is_dir():
        try:
            identity = load_or_create_identity(own.data_dir / IDENTITY_FILE)
        except IdentityError:  # the bootstrap peer reports it
            return
        check_run(own, origins, identity.peer_id)


async def _run(settings: Settings, key: str) -> int:
    swarm = _Swarm(settings, key)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(call_on_signal, swarm.stop)
            nursery.start_soon(
                partial(run_page, name=settings.http_name),
                settings.data_dir,
                settings.http,
                swarm.say_page,
            )
            await swarm.run()
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        error = root_error(group)
        if isinstance(error, PeerEndedError):
            return fail("swarm", str(error), EXIT_FAILED).code
        raise
    return EXIT_OK


class _Swarm:
    def __init__(self, settings: Settings, key: str) -> None:
        self._settings = settings
        self._key = key
        self._stop = trio.Event()
        self._members: list[ChildNode] = []
        self._console = Terminal()

    def stop(self) -> None:
        self._stop.set()

    def say_page(self, url: str) -> None:
        """Print the page's address, above the table if there is one."""
        if self._settings.json_output:
            say_json({"event": "page", "url": url})
        else:
            self._console.print(f"web page: {url}", soft_wrap=True)

    async def run(self) -> None:
        processes: list[StartedPeer] = []
        try:
            own = bootstrap_settings(self._settings, self._key)
            bootstrap = await self._start(processes, "bootstrap", own)
            ready = await trio.to_thread.run_sync(bootstrap.ready)
            for index in range(1, self._settings.nodes + 1):
                own = node_settings(self._settings, self._key, index, ready["addresses"][0])
                process = await self._start(processes, "node", own)
                self._members.append(ChildNode(own.data_dir, process))
            await self._watch()
            await self._of_each(ChildNode.stop)
            self._show_end()
            self._raise_if_one_failed()
        finally:
            with trio.CancelScope(shield=True):
                async with trio.open_nursery() as stopping:
                    for process in reversed(processes):
                        stopping.start_soon(trio.to_thread.run_sync, process.stop)

    async def _start(
        self,
        processes: list[StartedPeer],
        command: Literal["bootstrap", "node"],
        settings: Settings,
    ) -> StartedPeer:
        await trio.Path(settings.data_dir).mkdir(parents=True, exist_ok=True)
        words, log = [command, *to_flags(settings, command)], settings.data_dir / CHILD_LOG
        process = await trio.to_thread.run_sync(partial(StartedPeer, words, log=log))
        processes.append(process)
        return process

    async def _watch(self) -> None:
        """Poll and print until every node has finished, or until `stop` is called."""
        live = None
        if self._console.is_terminal and not self._settings.json_output:
            live = Live(self._table(), console=self._console, auto_refresh=False, transient=True)
            live.start()
        try:
            next_line = trio.current_time() + SAY_EVERY_SECONDS
            while not self._done():
                await self._of_each(ChildNode.ask)
                if live is not None:
                    live.update(self._table(), refresh=True)
                elif trio.current_time() >= next_line:
                    next_line = trio.current_time() + SAY_EVERY_SECONDS
                    self._print_progress()
                with trio.move_on_after(RETRY_S):
                    await self._stop.wait()
            await self._of_each(ChildNode.ask)
        finally:
            if live is not None:
                live.stop()
                self._console.print("stopping: the nodes write their last checkpoints")

    def _done(self) -> bool:
        if self._stop.is_set():
            return True
        alive = [member for member in self._members if member.process.exit_code is None]
        return all(member.finished for member in alive)

    async def _of_each(self, call: Callable[[ChildNode], None]) -> None:
        """Make a blocking call for all nodes at once."""
        async with trio.open_nursery() as nursery:
            for member in self._members:
                nursery.start_soon(trio.to_thread.run_sync, call, member)

    def _table(self) -> Table:
        return members_table(self._members, self._settings.data_dir)

    def _print_progress(self) -> None:
        if self._settings.json_output:
            self._print_event("progress")
        else:
            say(progress_line(self._members))

    def _print_event(self, name: str) -> None:
        rows = [to_json(member.row()) for member in self._members]
        say_json({"event": name, "schema_version": 1, "nodes": rows})

    def _raise_if_one_failed(self) -> None:
        """Raise PeerEndedError if a node ended by itself."""
        for member in self._members:
            if code := member.process.exit_code:
                why = f"{member.name} ended with code {code}: {member.process.why_ended}"
                raise PeerEndedError(why)

    def _show_end(self) -> None:
        if self._settings.json_output:
            self._print_event("end")
            return
        self._console.print(self._table())
        for line in next_commands(self._settings.data_dir, called()):
            say(line)
