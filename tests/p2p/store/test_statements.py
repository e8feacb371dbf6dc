"""The store's statements, on real files."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from shoal_p2p.store.store import (
    Deliverer,
    OwnBatch,
    StoreCore,
    StoreError,
    StoreFault,
    StoreLimits,
)
from shoal_wire.digests import batch_id
from shoal_wire.types import BatchId, GroupId, PeerId

ME = PeerId("me")
OTHER = PeerId("other")
CARRIER = Deliverer(peer_id=PeerId("carrier"), network="10.1.2.0/24")
NOW = 1_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "node.db"


@pytest.fixture
def core(path: Path) -> StoreCore:
    return opened(path)


def opened(path: Path, **kwargs: Any) -> StoreCore:
    return StoreCore(path, peer_id=ME, **kwargs)


def run(core: StoreCore, call: Callable[[StoreCore], Any], now_ms: int = NOW) -> Any:
    """Run one call in a transaction; raise what it raises."""
    return core.commit(call, now_ms=now_ms)


def sealed(sequence: int, _previous: int = 0, num_bytes: int = 100) -> bytes:
    return b"%d:" % sequence + bytes(num_bytes)


def reserve(core: StoreCore, key: bytes, *, now_ms: int = NOW, num_bytes: int = 100) -> OwnBatch:
    batch: OwnBatch = run(
        core,
        lambda c: c.reserve_own(key, lambda number, _: sealed(number, num_bytes=num_bytes)),
        now_ms,
    )
    return batch


def receive(
    core: StoreCore, number: int, *, at_ms: int = NOW, deliverer: Deliverer | None = None
) -> BatchId:
    envelope = b"external %d" % number + bytes(100)
    name = batch_id(envelope)
    run(core, lambda c: c.add_external(name, OTHER, number, envelope, at_ms, deliverer))
    return name


def forget_all(core: StoreCore) -> None:
    run(core, lambda c: c.prune(max_age_ms=5, max_bytes=1 << 20), NOW + 10)


def stored(core: StoreCore) -> list[BatchId]:
    return list(run(core, StoreCore.load).batch_ids)


class TestOwnBatches:
    def test_a_batch_is_there_after_a_restart_and_unsent_until_it_is_marked(
        self, path: Path
    ) -> None:
        core = opened(path)
        first, second = reserve(core, b"a"), reserve(core, b"b")
        assert run(core, lambda c: c.mark_sent(first.sequence))
        assert not run(core, lambda c: c.mark_sent(first.sequence))
        core.close()
        core = opened(path)
        (waiting,) = run(core, StoreCore.unsent)
        assert (waiting.sequence, waiting.envelope) == (second.sequence, second.envelope)
        assert second.envelope is not None
        assert waiting.batch_id == batch_id(second.envelope)
        assert set(stored(core)) == {first.batch_id, second.batch_id}

    def test_a_key_outlives_its_batch(self, core: StoreCore) -> None:
        first = reserve(core, b"a")
        forget_all(core)
        assert stored(core) == []
        again = reserve(core, b"a")
        assert (again.sequence, again.envelope, again.is_new) == (first.sequence, None, False)

    def test_keys_are_bounded_and_the_oldest_is_forgotten(self, path: Path) -> None:
        core = opened(path, limits=StoreLimits(max_client_keys=2))
        for key in (b"a", b"b", b"c"):
            reserve(core, key)
        assert not reserve(core, b"b").is_new
        assert reserve(core, b"a").is_new

    def test_a_sequence_is_never_used_again(self, path: Path) -> None:
        core = opened(path, first_sequence=41)
        assert [reserve(core, key).sequence for key in (b"a", b"b")] == [41, 42]
        forget_all(core)
        core.close()
        core = opened(path, first_sequence=7)
        assert reserve(core, b"c").sequence == 43
        assert reserve(core, b"the next").sequence == 44

    def test_an_envelope_that_cannot_be_made_leaves_nothing(self, core: StoreCore) -> None:

        def fail(_sequence: int, _previous: int) -> bytes:
            raise LookupError("no key")

        with pytest.raises(LookupError, match="no key"):
            run(core, lambda c: c.reserve_own(b"a", fail))
        after = reserve(core, b"a")
        assert (after.sequence, after.is_new) == (1, True)
        assert len(stored(core)) == 1

    def test_a_full_outbox_refuses_until_something_has_gone_out(self, path: Path) -> None:
        core = opened(path, limits=StoreLimits(max_unsent_bytes=250))
        first = reserve(core, b"a")
        reserve(core, b"b")
        with pytest.raises(StoreError) as refused:
            reserve(core, b"c")
        assert refused.value.fault is StoreFault.OUTBOX_FULL
        assert refused.value.retryable
        run(core, lambda c: c.mark_sent(first.sequence))
        assert reserve(core, b"c").is_new

    def test_the_outbox_counts_what_an_earlier_run_left(self, path: Path) -> None:
        core = opened(path)
        reserve(core, b"a", num_bytes=200)
        core.close()
        core = opened(path, limits=StoreLimits(max_unsent_bytes=250))
        with pytest.raises(StoreError, match="wait to be sent"):
            reserve(core, b"b")


class TestCommit:
    def test_a_failing_call_has_no_effect(self, core: StoreCore) -> None:

        def broken(opened: StoreCore) -> None:
            opened.reserve_own(b"a", sealed)
            raise LookupError("mine alone")

        with pytest.raises(LookupError):
            core.commit(broken)
        assert stored(core) == []
        assert reserve(core, b"a").sequence == 1

    def test_batches_share_a_transaction(self, path: Path) -> None:
        core = opened(path)
        watcher = sqlite3.connect(path)
        counts = []

        def watch(opened: StoreCore) -> None:
            opened.add_all([(BatchId(bytes([n]) * 32), OTHER, n, b"it", NOW, None) for n in (1, 2)])
            counts.append(watcher.execute("SELECT count(*) FROM batches").fetchone()[0])

        core.commit(watch)
        counts.append(watcher.execute("SELECT count(*) FROM batches").fetchone()[0])
        assert counts == [0, 2]

    @pytest.mark.parametrize(("durable", "level"), [(True, 2), (False, 1)])
    def test_only_a_durable_transaction_flushes_the_disk(
        self, core: StoreCore, durable: bool, level: int
    ) -> None:

        def level_of(c: StoreCore) -> int:
            return int(c._db.execute("PRAGMA synchronous").fetchone()[0])

        for _ in range(2):  # after a transaction of the other kind as well
            core.commit(level_of, durable=not durable)
            assert core.commit(level_of, durable=durable) == level


class TestFullDisk:
    def test_what_does_not_fit_is_not_stored_and_what_fits_is_later(self, core: StoreCore) -> None:
        (pages,) = core._db.execute("PRAGMA page_count").fetchone()
        core._db.execute(f"PRAGMA max_page_count = {pages + 8}")
        with pytest.raises(StoreError) as full:
            reserve(core, b"b", num_bytes=200_000)
        assert full.value.fault is StoreFault.FULL
        small = reserve(core, b"a")
        assert stored(core) == [small.batch_id]


class TestExternalBatches:
    def test_a_second_copy_is_known(self, core: StoreCore) -> None:
        name = receive(core, 3)
        assert not run(core, lambda c: c.add_external(name, OTHER, 3, b"again", NOW))
        (batch,) = run(core, lambda c: c.batches([name]))
        assert (batch.publisher, batch.sequence, batch.own) == (OTHER, 3, False)
        assert batch.envelope.startswith(b"external 3")

    def test_who_brought_it_is_known_as_long_as_it_is_here(self, path: Path) -> None:
        core = opened(path)
        unknown = receive(core, 1)
        name = receive(core, 2, at_ms=NOW + 1, deliverer=CARRIER)
        core.close()
        core = opened(path)
        found = run(core, lambda c: c.batches([name, BatchId(bytes(32)), unknown]))
        assert [batch.deliverer for batch in found] == [CARRIER, None]
        forget_all(core)
        assert stored(core) == []
        core.close()
        with closing(sqlite3.connect(path)) as database:
            assert database.execute("SELECT count(*) FROM bringers").fetchone() == (0,)

    def test_equivocation_moves_the_first_batch_to_the_evidence(self, path: Path) -> None:
        core = opened(path, limits=StoreLimits(max_equivocations=2))
        names = [receive(core, number) for number in range(3)]
        for number, name in enumerate(names):
            run(
                core,
                lambda c, name=name, number=number: c.add_equivocation(
                    OTHER, number, name, b"second %d" % number
                ),
            )
        assert stored(core) == []
        pairs = run(core, StoreCore.evidence)
        assert [(pair.sequence, pair.second) for pair in pairs] == [
            (1, b"second 1"),
            (2, b"second 2"),
        ]
        assert pairs[0].first is not None
        assert pairs[0].first.startswith(b"external 1")

    def test_equivocation_whose_first_is_gone_is_kept_all_the_same(self, core: StoreCore) -> None:
        run(core, lambda c: c.add_equivocation(OTHER, 5, BatchId(bytes(32)), b"second"))
        (pair,) = run(core, StoreCore.evidence)
        assert (pair.first, pair.second) == (None, b"second")
        assert pair.first_id == BatchId(bytes(32))


class TestConsumed:
    def test_ids_survive_a_restart_in_order_within_a_bound(self, path: Path) -> None:
        limits = StoreLimits(max_consumed_ids=3)
        core = opened(path, limits=limits)
        ids = [GroupId(bytes([number]) * 16) for number in range(5)]
        assert run(core, lambda c: c.consume(ids[:3])) == 3
        assert run(core, lambda c: c.consume([ids[2], ids[3]])) == 1
        assert run(core, lambda c: c.consume([])) == 0
        core.close()
        core = opened(path, limits=limits)
        assert run(core, StoreCore.load).consumed_ids == tuple(ids[1:4])
        run(core, lambda c: c.consume([ids[4]]))
        assert run(core, StoreCore.load).consumed_ids == tuple(ids[2:5])


class TestPrune:
    def test_too_old_goes_even_unsent(self, core: StoreCore) -> None:
        reserve(core, b"a", now_ms=NOW - 50)
        kept = reserve(core, b"b")
        assert run(core, lambda c: c.prune(max_age_ms=40, max_bytes=1 << 20)) == 1
        assert stored(core) == [kept.batch_id]

    def test_what_is_not_kept_goes_unless_unsent_or_just_come(self, core: StoreCore) -> None:
        kept = receive(core, 1, at_ms=NOW - 100)
        receive(core, 2, at_ms=NOW - 100)
        fresh = receive(core, 3, at_ms=NOW - 10)
        unsent = reserve(core, b"a", now_ms=NOW - 100)
        sent = reserve(core, b"b", now_ms=NOW - 100)
        run(core, lambda c: c.mark_sent(sent.sequence))
        pruned = run(
            core,
            lambda c: c.prune(max_age_ms=1000, max_bytes=1 << 20, keep={kept}, grace_ms=50),
        )
        assert pruned == 2
        assert set(stored(core)) == {kept, fresh, unsent.batch_id}
        # The set of one call is not that of the next.
        run(
            core,
            lambda c: c.prune(max_age_ms=1000, max_bytes=1 << 20, keep={fresh}, grace_ms=50),
        )
        assert set(stored(core)) == {fresh, unsent.batch_id}

    def test_bytes_are_bounded_by_deleting_the_oldest_that_may_go(self, core: StoreCore) -> None:
        unsent = reserve(core, b"a", now_ms=NOW - 9)
        names = [receive(core, number, at_ms=NOW + number) for number in range(4)]
        run(core, lambda c: c.prune(max_age_ms=1000, max_bytes=250))
        assert stored(core) == [unsent.batch_id, *names[2:]]


class TestOpening:
    def test_the_file_is_its_owners_alone(self, path: Path) -> None:
        core = opened(path)
        reserve(core, b"a")
        for file in path.parent.iterdir():
            assert file.stat().st_mode & 0o777 == 0o600, file

    def test_another_peers_database_is_refused(self, path: Path) -> None:
        opened(path).close()
        with pytest.raises(StoreError, match="belongs to peer me, not to other") as refused:
            StoreCore(path, peer_id=OTHER)
        assert refused.value.fault is StoreFault.FOREIGN
        assert not refused.value.retryable

    def test_a_newer_version_is_refused(self, path: Path) -> None:
        opened(path).close()
        with sqlite3.connect(path) as database:
            database.execute("UPDATE meta SET value = 99 WHERE key = 'schema_version'")
        with pytest.raises(StoreError, match="schema version 99"):
            opened(path)

    @pytest.mark.parametrize(
        "damage", ["not a database", "header", "truncated", "pages", "last page"]
    )
    def test_a_damaged_file_is_one_clear_line_and_left_alone(self, path: Path, damage: str) -> None:
        core = opened(path)
        for number in range(60):
            receive(core, number)
        core.close()
        whole = path.read_bytes()
        middle = len(whole) // 2
        damaged = {
            "not a database": b"hello" * 1000,
            "header": bytes(100) + whole[100:],
            "truncated": whole[:middle],
            "last page": whole[:-4096] + b"\xaa" * 4096,
            "pages": whole[:4096] + b"\xaa" * (len(whole) - 4096),
        }[damage]
        path.write_bytes(damaged)
        with pytest.raises(StoreError) as refused:
            opened(path)
        assert refused.value.fault is StoreFault.DAMAGED
        assert "node.db is damaged" in str(refused.value)
        assert "\n" not in str(refused.value)
        assert path.read_bytes() == damaged

    def test_a_folder_that_is_not_there_is_a_clear_error(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="cannot be opened"):
            opened(tmp_path / "nowhere" / "node.db")

    def test_a_database_that_another_process_is_writing_is_refused_not_damaged(
        self, path: Path
    ) -> None:
        core = opened(path)
        core._db.execute("PRAGMA busy_timeout = 1")
        with sqlite3.connect(path, isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError) as refused:
                reserve(core, b"a")
            other.execute("ROLLBACK")
        assert refused.value.fault is StoreFault.DISK
        assert reserve(core, b"a").is_new
