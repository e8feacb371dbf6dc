"""Finds the manifest of the swarm that this peer belongs to.

one saved earlier                    ─▶ that one: a bootstrap of another swarm does not change it
none, a bootstrap answers in time    ─▶ its manifest (saved for the next start)
none, and no bootstrap answers       ─▶ one made from the settings, until a bootstrap answers

So a swarm is pinned on first use; with `--new-run`, the manifest of a bootstrap replaces it. If the
settings name a swarm, only its manifest is accepted, from any of these, and it is waited for.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import trio

from shoal_base.visible import visible_name
from shoal_base.waits import AT_ONCE_S, POLL_S, RETRY_S
from shoal_p2p.disk import Refused, say_refused
from shoal_p2p.net.address import parse_peer_address
from shoal_p2p.net.host import RequestError
from shoal_p2p.net.interface import Host
from shoal_p2p.peers import services
from shoal_p2p.peers.try_out import TryOut, anything
from shoal_settings.schema import Settings
from shoal_tasks.bundle import with_accepted
from shoal_tasks.run_check import WAYS
from shoal_tasks.run_memory import load_memory, save_memory
from shoal_tasks.swarm import specs_of, starting_families
from shoal_wire.errors import ManifestError
from shoal_wire.manifest import Manifest, SwarmRules, make_manifest
from shoal_wire.types import PeerId

log = logging.getLogger(__name__)

Bring = Callable[[Manifest], Awaitable[None]]
"""Fetches the missing files of a swarm's tasks that the user accepts."""


async def nothing(_manifest: Manifest) -> None:
    """Fetch nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundManifest:
    """The manifest to start with."""

    manifest: Manifest
    confirmed: bool
    """True if a bootstrap sent it at this start."""


def manifest_of_settings(settings: Settings, *, me: PeerId | None = None) -> Manifest:
    """Return the manifest of a swarm that these settings start; `me` is on its list of peers."""
    listed = {PeerId(peer) for peer in settings.allow_peers}
    if listed and me is not None:
        listed.add(me)
    return make_manifest(
        settings.swarm_name,
        starting_families(settings.task_preset, settings.task_files),
        SwarmRules(
            max_age_seconds=settings.max_age_seconds,
            allow_inline_tasks=settings.inline_tasks,
            allowed_peers=tuple(sorted(listed)),
            shard_count=settings.shards,
        ),
    )


class ManifestSource:
    """Fetches the manifest from bootstraps, saves it, and falls back to the settings."""

    def __init__(
        self,
        *,
        host: Host,
        data_dir: Path,
        settings: Settings,
        wait_s: float = 10.0,
        refused: Refused = say_refused,
        try_out: TryOut = anything,
        bring: Bring = nothing,
    ) -> None:
        """A start without a saved manifest waits for a bootstrap for at most `wait_s` seconds.

        Before a bootstrap's manifest is saved, `bring` fetches missing task files and `try_out`
        checks its families.
        """
        self._host = host
        self._data_dir = data_dir
        self._settings = settings
        self._wait_s = wait_s
        self._refused = refused
        self._try_out = try_out
        self._bring = bring
        self._bootstraps = tuple(
            parse_peer_address(address).peer_id for address in settings.bootstrap
        )
        self._memory = load_memory(data_dir)
        self._wanted = settings.swarm_id
        saved = self._memory.manifest
        self._pinned = None if settings.new_run or not self._bootstraps else saved
        """The manifest of the folder's last run, which no bootstrap replaces."""
        if self._pinned is not None and self._wanted == "none":
            self._wanted = self._pinned.digest.hex()
        self._other_swarms: dict[PeerId, str] = {}
        """The swarms of the bootstraps that are not in the wanted one."""

    @property
    def bootstraps(self) -> tuple[PeerId, ...]:
        """The peers that the bootstrap addresses name."""
        return self._bootstraps

    def local(self) -> Manifest | None:
        """Return the manifest known without a bootstrap; None if a bootstrap has to send one.

        Raises:
            ManifestError: no manifest can be made from the settings.
        """
        saved = self._saved()
        if saved is None and not self._bootstraps:
            own = manifest_of_settings(self._settings, me=self._host.peer_id)
            if not self._is_wanted(own):
                raise ManifestError(
                    f"swarm {self._wanted[:12]} (--swarm-id) is not the one that these settings "
                    "start: name a --bootstrap of it"
                )
            return own
        return saved

    async def find(self) -> FoundManifest:
        """Return the manifest to start with.

        It takes little longer than the wait for a bootstrap and the trial of a swarm's families.
        If the settings name a swarm that they do not start themselves, it waits without end.

        Raises:
            ManifestError: the bootstrap's swarm needs something this version does not know, or no
                bootstrap is in the swarm that the settings name.
        """
        saved = self._saved()
        if self._bootstraps and (fetched := await self._fetch_in_time(saved)) is not None:
            return FoundManifest(manifest=await self._adopt(fetched), confirmed=True)
        if saved is not None:
            self._save(saved, is_founded=self._memory.is_founded)
            return FoundManifest(manifest=saved, confirmed=False)
        own = manifest_of_settings(self._settings, me=self._host.peer_id)
        if self._is_wanted(own):
            if self._bootstraps:  # their swarm is not known yet: do not pin
                log.warning("no bootstrap answers yet; training alone and trying again")
            else:
                self._save(own, is_founded=True)
            return FoundManifest(manifest=own, confirmed=False)
        who = " or ".join(self._settings.bootstrap)
        log.warning("no peer of swarm %s answers yet: waiting for %s", self._wanted[:12], who)
        return FoundManifest(manifest=await self._adopt(await self._fetch()), confirmed=True)

    async def _fetch_in_time(self, saved: Manifest | None) -> Manifest | None:
        wait_s = self._wait_s if saved is None else min(self._wait_s, AT_ONCE_S)
        with trio.move_on_after(wait_s):
            try:
                return await self._fetch()
            except ManifestError:
                # A swarm that this folder started itself never had a bootstrap.
                if saved is None or self._memory.is_founded:
                    raise
        return None

    async def watch(self, found: FoundManifest) -> Manifest:
        """Wait for a bootstrap that turns out to be in another swarm; return its manifest."""
        if found.confirmed or not self._bootstraps:
            await trio.sleep_forever()
        while True:
            try:
                manifest = await self._fetch()
                if manifest.digest != found.manifest.digest:
                    return await self._adopt(manifest)
                self._save(manifest)
            except ManifestError as error:
                stays = "" if self._pinned is None else ", and stays in its own"
                log.error("this peer cannot join the bootstrap's swarm%s: %s", stays, error)
            await trio.sleep_forever()

    def _is_wanted(self, manifest: Manifest) -> bool:
        return self._wanted in ("none", manifest.digest.hex())

    def _saved(self) -> Manifest | None:
        saved = self._memory.manifest
        return saved if saved is not None and self._is_wanted(saved) else None

    async def _adopt(self, manifest: Manifest) -> Manifest:
        # Refuses tasks that this version cannot regenerate or score, then those too slow.
        await self._bring(manifest)
        families = specs_of(manifest, self._task_files())
        saved = self._memory.manifest
        if saved is None or saved.digest != manifest.digest:
            await self._try_out(families)
        self._save(manifest)
        return manifest

    def _task_files(self) -> tuple[str, ...]:
        return with_accepted(self._settings.task_files, self._data_dir)

    def _save(self, manifest: Manifest, *, is_founded: bool = False) -> None:
        files = self._task_files()
        try:
            had = specs_of(manifest, files)
            save_memory(self._data_dir, manifest, files, families=had, is_founded=is_founded)
        except OSError as error:  # the next start fetches it again
            self._refused("the swarm's manifest is not saved", error)

    async def _fetch(self) -> Manifest:
        """Wait until a bootstrap is connected and answers with a usable manifest.

        Raises:
            ManifestError: every bootstrap is in another swarm than the wanted one.
        """
        pause = POLL_S
        while True:
            connected = self._host.connected_peers()
            for peer_id in self._bootstraps:
                if peer_id in connected and peer_id not in self._other_swarms:
                    manifest = await _try_fetch(self._host, peer_id)
                    if manifest is not None and self._is_wanted(manifest):
                        return manifest
                    if manifest is not None:
                        name = visible_name(manifest.swarm_name)
                        self._other_swarms[peer_id] = f"{name} {manifest.short_name}"
            if self._other_swarms.keys() >= set(self._bootstraps):
                raise ManifestError(self._other_swarm())
            await trio.sleep(pause)
            pause = min(RETRY_S, pause * 1.2)

    def _other_swarm(self) -> str:
        peer_id, swarm = next(iter(self._other_swarms.items()))
        if self._pinned is not None and self._settings.swarm_id == "none":
            return (
                f"{peer_id} is in swarm {swarm}, and the run in {self._data_dir} in swarm "
                f"{visible_name(self._pinned.swarm_name)} {self._pinned.short_name}; {WAYS}"
            )
        return (
            f"{peer_id} is in another swarm ({swarm}), not in {self._wanted[:12]} (--swarm-id): "
            "ask for a new invitation"
        )


async def _try_fetch(host: Host, peer_id: PeerId) -> Manifest | None:
    try:
        return await services.fetch_manifest(host, peer_id)
    except (RequestError, ManifestError) as error:
        log.warning("no manifest from %s: %s", peer_id, error)
        return None
