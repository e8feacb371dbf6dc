"""Fetches missing task files, shows their tasks, and accepts or declines them.

    manifest ─▶ families without files ─▶ TaskClient ─▶ files ─▶ TaskOffer ─ accept? ─▶ lint ─▶ kept

No code of a task runs before it is accepted. A task that is declined, or that rewards a wrong
answer most, is skipped; the node joins for the other families.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from shoal_base.visible import visible_name
from shoal_p2p.bundles.client import NoBundleError, TaskClient
from shoal_p2p.threads import InThread
from shoal_tasks.bundle import (
    TASKS_FOLDER,
    accepted_folder,
    accepted_task_files,
    required_files,
    with_files,
    write_accepted,
)
from shoal_tasks.errors import TaskError
from shoal_tasks.hub_rows import source_of, write_hub_rows
from shoal_tasks.lint.attempts import Examples
from shoal_tasks.lint.start import quick_report
from shoal_tasks.rows import TaskRow, first_rows
from shoal_tasks.server_file import SERVER_FILE, write_server_file
from shoal_tasks.spec import ROWS_GENERATOR, FamilySpec
from shoal_tasks.swarm import (
    families_without_files,
    families_without_servers,
    how_to_install,
    installed_version,
)
from shoal_wire.manifest import Manifest, TaskFamily
from shoal_wire.task_messages import Bundle
from shoal_wire.types import Digest, PeerId

log = logging.getLogger(__name__)

MAX_ALL_BYTES: Final = 1 << 30
"""Most bytes of accepted tasks in one data directory."""

_NUM_SAMPLES: Final = 2
_REPORT_BYTES: Final = 4_000_000
_ATTEMPTS: Final = 8
"""Attempts, with one peer after another, and with the same one again after a break."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOffer:
    """A task whose files are here, for the decision to accept it."""

    spec: FamilySpec
    """The family, with the paths of its files."""
    bundle: Bundle
    sent_by: PeerId
    samples: tuple[TaskRow, ...]
    """The first rows; none for a game, or before rows are read from a hub."""

    @property
    def has_code(self) -> bool:
        """True if the author's Python code would run on this machine."""
        return has_code(self.spec)

    @property
    def source(self) -> str:
        """The data set that would be downloaded from a hub; empty for none."""
        return source_of(self.bundle.hub_rows) if self.bundle.hub_rows else ""


def has_code(spec: FamilySpec) -> bool:
    """Return whether a task's author has code in it: Python files, or unit tests in the rows."""
    return spec.runs_code or any(one.is_code for one in required_files(spec))


Accept = Callable[[TaskOffer], Awaitable[bool]]
Refuse = Callable[[FamilySpec, Bundle | None], str]
"""Returns why a task is not fetched, before and after its files are known; empty if it is."""


class TaskAcceptor:
    """Fetches and offers the tasks that a data directory lacks."""

    def __init__(
        self,
        *,
        client: TaskClient,
        data_dir: Path,
        refuse: Refuse,
        accept: Accept,
        in_thread: InThread,
    ) -> None:
        self._client = client
        self._data_dir = data_dir
        self._refuse = refuse
        self._accept = accept
        self._in_thread = in_thread

    async def bring(self, manifest: Manifest, task_files: Sequence[str]) -> None:
        """Fetch and offer the families whose files are neither in `task_files` nor accepted before.

        Raises:
            ManifestError: a task file that cannot be used.
        """
        files = (*task_files, *accepted_task_files(self._data_dir))
        missing = await self._in_thread(families_without_files, manifest, files)
        for family, spec in missing:
            why = await self.bring_one(family, spec, manifest.digest)
            if why:
                log.warning("task %s is skipped: %s", visible_name(spec.name), why)
        for spec in await self._in_thread(families_without_servers, manifest, files):
            log.warning(
                "task %s is skipped: %s", visible_name(spec.name), await self._describe_server(spec)
            )

    async def _describe_server(self, spec: FamilySpec) -> str:
        """Write a task file for a family on an OpenEnv server; return what to do with it."""
        path = accepted_folder(self._data_dir, spec) / SERVER_FILE
        try:
            await self._in_thread(write_server_file, spec, path)
        except OSError as error:
            return f"{path} cannot be written: {error.strerror}"
        return (
            f"it needs the OpenEnv server of {visible_name(str(spec.config['environment']))}: "
            f"start one, set its address in {path}, and add --tasks {path}"
        )

    async def bring_one(self, family: TaskFamily, spec: FamilySpec, swarm: Digest) -> str:
        """Fetch and offer one family of a swarm.

        Return why it is skipped; empty if it was accepted.
        """
        if installed_version(spec.verifier) != spec.verifier_version:
            return f"it needs {spec.verifier} {spec.verifier_version}{how_to_install(spec)}"
        folder = accepted_folder(self._data_dir, spec)
        # Before any peer is asked: without a terminal nothing may be accepted at all.
        if (why := self._refuse(spec, None)) != "":
            return why
        for _ in range(_ATTEMPTS):
            try:
                peer_id, bundle = await self._client.find(spec)
            except NoBundleError as error:
                return why or f"{error}: ask its author for share = true, or for a copy"
            if (why := await self._refusal(spec, bundle)) != "":
                return why
            try:
                await self._fetch(peer_id, spec, bundle, folder)
                return await self._offer(family, spec, bundle, peer_id, swarm)
            except NoBundleError as error:
                why = f"{peer_id} did not send all of its files ({error})"
                log.info("task %s: %s", visible_name(spec.name), why)
            except OSError as error:
                return f"its files cannot be written: {error.strerror}"
        return why

    async def _refusal(self, spec: FamilySpec, bundle: Bundle) -> str:
        """Return why a bundle is not fetched; empty if it is."""
        used = await self._in_thread(_num_bytes, self._data_dir / TASKS_FOLDER, spec.digest.hex())
        if used + bundle.num_bytes > MAX_ALL_BYTES:
            return f"accepted tasks have {used:,} bytes, at most {MAX_ALL_BYTES:,} are stored"
        return self._refuse(spec, bundle)

    async def _fetch(self, peer_id: PeerId, spec: FamilySpec, bundle: Bundle, folder: Path) -> None:
        name, total = visible_name(spec.name), bundle.num_bytes
        log.info("task %s: fetching %s bytes from %s", name, f"{total:,}", peer_id)
        reported = fetched = 0

        def on_bytes(num_bytes: int) -> None:
            nonlocal reported, fetched
            fetched += num_bytes
            if fetched - reported > max(_REPORT_BYTES, total / 5) and fetched < total:
                reported = fetched
                log.info("task %s: %d %% fetched", name, 100 * fetched // total)

        await self._client.fetch(peer_id, spec, bundle, folder, on_bytes)

    async def _offer(
        self, family: TaskFamily, spec: FamilySpec, bundle: Bundle, peer_id: PeerId, swarm: Digest
    ) -> str:
        folder = accepted_folder(self._data_dir, spec)
        spec = with_files(spec, folder, [one.name for one in bundle.files])
        why = await self._decide(spec, bundle, peer_id)
        if why:
            await self._in_thread(partial(shutil.rmtree, folder, ignore_errors=True))
            return why
        await self._in_thread(
            partial(write_accepted, folder, family, bundle, sent_by=peer_id, swarm=swarm)
        )
        log.info("task %s is accepted; its files are in %s", visible_name(spec.name), folder)
        return ""

    async def _decide(self, spec: FamilySpec, bundle: Bundle, peer_id: PeerId) -> str:
        """Return why a task whose files are here is not accepted; empty if it is."""
        hub_rows = bundle.hub_rows
        is_checked_after = has_code(spec) or bool(hub_rows)
        # Rows are data, so they are checked before the user is asked. Code runs once accepted, and
        # only then is a data set of unknown size downloaded.
        if not is_checked_after and (why := await self._lint(spec, bundle)) != "":
            return why
        try:
            samples = () if hub_rows else await self._in_thread(_samples, spec)
            offer = TaskOffer(spec=spec, bundle=bundle, sent_by=peer_id, samples=samples)
            if not await self._accept(offer):
                return "you declined it"
            if hub_rows:
                sha256 = bundle.files[0].sha256
                await self._in_thread(write_hub_rows, hub_rows, sha256, Path(spec.path))
        except TaskError as error:
            return str(error)
        return await self._lint(spec, bundle) if is_checked_after else ""

    async def _lint(self, spec: FamilySpec, bundle: Bundle) -> str:
        """Return why no start would accept a task; empty if one would."""
        examples = Examples(good=bundle.good, bad=bundle.bad)
        try:
            report = await self._in_thread(quick_report, spec, examples)
        except TaskError as error:
            return str(error)
        return f"it is not sound: {report.sentence}" if report.is_refused else ""


def _samples(spec: FamilySpec) -> tuple[TaskRow, ...]:
    return first_rows(Path(spec.path), _NUM_SAMPLES) if spec.generator == ROWS_GENERATOR else ()


def _num_bytes(folder: Path, without: str) -> int:
    """Return the size of all accepted tasks, except the one in the folder `without`."""
    files = (one for one in folder.glob("*/*") if one.is_file() and one.parent.name != without)
    return sum(one.stat().st_size for one in files)
