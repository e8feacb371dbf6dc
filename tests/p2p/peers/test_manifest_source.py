"""Which swarm a peer belongs to: its memory, then the bootstrap's word, then its own settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from shoal_p2p.net.host import Libp2pHost
from shoal_p2p.peers import manifest_source as module
from shoal_p2p.peers import services
from shoal_p2p.peers.manifest_source import ManifestSource, manifest_of_settings
from shoal_p2p.peers.peer_book import PeerBook
from shoal_settings.schema import Settings
from shoal_tasks.run_memory import load_manifest, load_memory, save_manifest
from shoal_wire.errors import ManifestError
from shoal_wire.limits import MANIFEST_PROTOCOL
from shoal_wire.manifest import Manifest, TaskFamily, make_manifest
from shoal_wire.peers import PeerAddresses
from shoal_wire.types import PeerId
from tests.support import factories as make
from tests.support.nodes import fresh_identity, open_test_host, until

THEIRS = make.swarm("theirs")


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_S", 0.01)
    monkeypatch.setattr(module, "RETRY_S", 0.02)


def future_manifest() -> Manifest:
    """A manifest with a family that this version does not know."""
    family = TaskFamily(
        name="new",
        generator="invented_tomorrow",
        config_json="{}",
        weight=1.0,
        verifier="reasoning_gym",
        verifier_version="0.1.25",
        answer_format="plain",
    )
    return make_manifest("future", (family,))


@asynccontextmanager
async def pair(
    serves: Manifest | bytes | None,
    tmp_path: Path,
    *,
    wait_s: float = 10.0,
    wanted: Manifest | None = None,
    new_run: bool = False,
) -> AsyncIterator[tuple[ManifestSource, Libp2pHost, str]]:
    """A peer that may want one swarm, and the address of its bootstrap, not yet connected."""
    async with open_test_host() as bootstrap, open_test_host() as host:
        if isinstance(serves, Manifest):
            services.serve_manifest(bootstrap, serves)
        elif serves is not None:

            async def answer(_peer: PeerId, _request: bytes) -> bytes:
                return serves

            bootstrap.set_request_handler(MANIFEST_PROTOCOL, answer, max_request_bytes=10)
        (address, *_) = bootstrap.listen_addrs()
        swarm_id = "none" if wanted is None else wanted.digest.hex()
        settings = Settings(
            bootstrap=(address,), swarm_name="mine", swarm_id=swarm_id, new_run=new_run
        )
        source = ManifestSource(host=host, data_dir=tmp_path, settings=settings, wait_s=wait_s)
        yield source, host, address


async def test_it_waits_for_a_bootstrap_that_comes_in_time(tmp_path: Path) -> None:
    async with pair(THEIRS, tmp_path) as (source, host, address), trio.open_nursery() as nursery:
        nursery.start_soon(host.dial, address)
        with trio.fail_after(20):
            found = await source.find()
        assert (found.manifest, found.confirmed) == (THEIRS, True)
        assert load_manifest(tmp_path) == THEIRS


async def test_with_no_bootstrap_there_and_nothing_remembered_it_makes_its_own(
    tmp_path: Path,
) -> None:
    async with pair(THEIRS, tmp_path, wait_s=0.05) as (source, _host, _address):
        found = await source.find()
        assert found.manifest.swarm_name == "mine"
        assert not found.confirmed
        assert load_manifest(tmp_path) is None


async def test_alone_it_starts_at_once(tmp_path: Path) -> None:
    async with open_test_host() as host:
        settings = Settings(swarm_name="mine", tasks=("paper",), max_age_seconds=7)
        source = ManifestSource(host=host, data_dir=tmp_path, settings=settings)
        found = await source.find()
        assert found.manifest == manifest_of_settings(settings)
        assert found.manifest.rules.max_age_seconds == 7
        assert len(found.manifest.families) == 9
        # And no peer will ever report another one.
        with trio.move_on_after(0.05) as waited:
            await source.watch(found)
        assert waited.cancelled_caught


async def test_a_bootstrap_that_comes_later_with_another_manifest_wins(tmp_path: Path) -> None:
    async with pair(THEIRS, tmp_path, wait_s=0.05) as (source, host, address):
        found = await source.find()
        await host.dial(address)
        with trio.fail_after(20):
            assert await source.watch(found) == THEIRS
        assert load_manifest(tmp_path) == THEIRS


async def test_a_bootstrap_that_comes_later_and_agrees_changes_nothing(tmp_path: Path) -> None:
    mine = manifest_of_settings(Settings(swarm_name="mine"))
    async with pair(mine, tmp_path, wait_s=0.05) as (source, host, address):
        found = await source.find()
        await host.dial(address)
        async with trio.open_nursery() as nursery:
            manifests: list[Manifest] = []

            async def watch() -> None:
                manifests.append(await source.watch(found))

            nursery.start_soon(watch)
            await until(lambda: load_manifest(tmp_path) == mine)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert manifests == []
            nursery.cancel_scope.cancel()


async def test_a_swarm_that_this_version_cannot_join_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(future_manifest(), tmp_path) as (source, host, address):
        await host.dial(address)
        with pytest.raises(ManifestError, match="invented_tomorrow"):
            await source.find()
        assert load_manifest(tmp_path) is None
        # Found later, it continues with the one it has.
        await host.disconnect(await host.dial(address))
        source._wait_s = 0.05
        found = await source.find()
        await host.dial(address)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(source.watch, found)
            await until(lambda: "cannot join the bootstrap's swarm" in caplog.text)
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "answer",
    [b"", b"\xff" * 100, THEIRS.raw[:-2], None],
    ids=["empty", "junk", "cut", "none"],
)
async def test_an_answer_that_is_no_manifest_is_no_answer(
    tmp_path: Path, answer: bytes | None
) -> None:
    async with pair(answer, tmp_path, wait_s=0.3) as (source, host, address):
        await host.dial(address)
        found = await source.find()
        assert not found.confirmed
        assert found.manifest.swarm_name == "mine"


async def test_a_peer_list_leaves_the_requesting_peer_out() -> None:
    book = PeerBook()
    remembered = fresh_identity().peer_id
    async with (
        open_test_host() as server,
        open_test_host() as asker,
        open_test_host() as third,
    ):
        services.serve_peers(server, lambda: book)
        for host in (asker, third):
            await host.dial(server.listen_addrs()[0])
        known = PeerAddresses(peer_id=remembered, addresses=("/ip4/192.0.2.7/tcp/4001",))
        book.note_connected(known, now_ms=0)
        with trio.fail_after(20):
            found = await services.fetch_peers(asker, server.peer_id)
            while third.peer_id not in {peer.peer_id for peer in found}:
                await trio.sleep(0.01)  # until identify has sent the third one's address
                found = await services.fetch_peers(asker, server.peer_id)
        assert [peer.peer_id for peer in found] == [third.peer_id, remembered]
        assert found[1].addresses == ("/ip4/192.0.2.7/tcp/4001",)


async def test_who_has_a_manifest_starts_at_once_while_its_bootstrap_is_down(
    tmp_path: Path,
) -> None:
    save_manifest(tmp_path, THEIRS)
    async with pair(future_manifest(), tmp_path) as (source, _host, _address):
        started = trio.current_time()
        found = await source.find()
        assert (found.manifest, found.confirmed) == (THEIRS, False)
        assert trio.current_time() - started < 2.0


async def test_a_swarm_that_is_wanted_is_waited_for_and_no_other_begun(tmp_path: Path) -> None:
    async with pair(THEIRS, tmp_path, wait_s=0.05, wanted=THEIRS) as (source, host, address):
        async with trio.open_nursery() as nursery:
            found: list[Manifest] = []

            async def find() -> None:
                found.append((await source.find()).manifest)

            nursery.start_soon(find)
            await trio.sleep(0.2)
            assert not found
            await host.dial(address)
            await until(lambda: bool(found))
        assert found == [THEIRS]


async def test_another_swarm_at_the_address_is_reported_and_not_joined(tmp_path: Path) -> None:
    mine = make.swarm("mine")
    async with pair(THEIRS, tmp_path, wanted=mine) as (source, host, address):
        await host.dial(address)
        with pytest.raises(ManifestError, match=r"in another swarm \(theirs"):
            await source.find()
        assert load_manifest(tmp_path) is None


async def test_what_an_earlier_run_kept_counts_only_if_it_is_the_swarm_wanted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mine = make.swarm("mine")
    save_manifest(tmp_path, mine)
    async with pair(THEIRS, tmp_path, wait_s=0.05, wanted=mine) as (source, host, address):
        await host.dial(address)
        found = await source.find()
        assert found.manifest == mine
        async with trio.open_nursery() as nursery:
            nursery.start_soon(source.watch, found)
            await until(lambda: "is in another swarm" in caplog.text)
            nursery.cancel_scope.cancel()
        assert load_manifest(tmp_path) == mine
    save_manifest(tmp_path, mine)
    async with pair(THEIRS, tmp_path, wait_s=0.05, wanted=THEIRS) as (source, host, address):
        with trio.move_on_after(0.3) as waited:
            await source.find()
        assert waited.cancelled_caught, "while no peer contradicts, too"
        await host.dial(address)
        assert (await source.find()).manifest == THEIRS


async def test_a_wanted_swarm_whose_manifest_no_peer_has_is_an_error(tmp_path: Path) -> None:
    own = manifest_of_settings(Settings())
    async with open_test_host() as host:
        theirs, ours = (
            ManifestSource(host=host, data_dir=tmp_path, settings=Settings(swarm_id=swarm_id))
            for swarm_id in (THEIRS.digest.hex(), own.digest.hex())
        )
        assert (await ours.find()).manifest == ours.local() == own
        with pytest.raises(ManifestError, match="name a --bootstrap"):
            theirs.local()


OURS = make.swarm("ours")


@pytest.mark.parametrize("comes", ["before", "after"])
async def test_a_bootstrap_of_another_swarm_moves_no_node_at_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, comes: str
) -> None:
    save_manifest(tmp_path, OURS)
    async with pair(THEIRS, tmp_path, wait_s=0.05) as (source, host, address):
        if comes == "before":
            await host.dial(address)
        found = await source.find()
        assert (found.manifest, found.confirmed) == (OURS, False)
        await host.dial(address)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(source.watch, found)
            await until(lambda: "stays in its own" in caplog.text)
            await trio.testing.wait_all_tasks_blocked(0.05)
            nursery.cancel_scope.cancel()
    lines = [record.getMessage() for record in caplog.records if "stays" in record.getMessage()]
    assert len(lines) == 1
    for word in (OURS.short_name, THEIRS.short_name, "theirs", "ours", "--new-run", "--data-dir"):
        assert word in lines[0]
    assert load_manifest(tmp_path) == OURS


@pytest.mark.parametrize("comes", ["before", "after"])
async def test_the_flag_accepts_another_swarm_of_a_bootstrap(tmp_path: Path, comes: str) -> None:
    save_manifest(tmp_path, OURS)
    async with pair(THEIRS, tmp_path, wait_s=0.05, new_run=True) as (source, host, address):
        if comes == "before":
            await host.dial(address)
        found = await source.find()
        await host.dial(address)
        with trio.fail_after(20):
            moved = found.manifest if found.confirmed else await source.watch(found)
        assert moved == THEIRS == load_manifest(tmp_path)


async def test_a_swarm_that_began_here_meets_its_first_bootstrap(tmp_path: Path) -> None:
    async with open_test_host() as host:
        alone = Settings(swarm_name="mine")
        source = ManifestSource(host=host, data_dir=tmp_path, settings=alone)
        mine = (await source.find()).manifest
    async with pair(THEIRS, tmp_path) as (source, host, address):
        await host.dial(address)
        with pytest.raises(ManifestError, match=r"is in swarm theirs.*--data-dir.*--new-run"):
            await source.find()
    assert load_memory(tmp_path).is_founded
    async with pair(mine, tmp_path) as (source, host, address):
        await host.dial(address)
        assert (await source.find()).confirmed
    # From then on a bootstrap has stated it, and none that says otherwise ends a start.
    assert not load_memory(tmp_path).is_founded
    async with pair(THEIRS, tmp_path) as (source, host, address):
        await host.dial(address)
        assert (await source.find()).manifest == mine


async def test_while_no_bootstrap_has_answered_no_swarm_is_pinned(tmp_path: Path) -> None:
    async with pair(THEIRS, tmp_path, wait_s=0.05) as (source, _host, _address):
        assert (await source.find()).manifest.swarm_name == "mine"
    async with pair(THEIRS, tmp_path) as (source, host, address):
        await host.dial(address)
        assert (await source.find()).manifest == THEIRS
