"""Task files between peers: whole or not at all, whatever a peer sends and whenever it stops."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from shoal_p2p.bundles.client import NoBundleError, TaskClient
from shoal_p2p.bundles.server import TaskServeLimits, TaskServer
from shoal_p2p.fair.buckets import Rate
from shoal_p2p.net.request import RequestError, RequestFailure
from shoal_tasks.bundle import files_here
from shoal_wire.limits import TASK_PIECE_BYTES, TASKS_PROTOCOL
from shoal_wire.task_codec import (
    TaskProtocolError,
    decode_task_answer,
    decode_task_query,
    encode_task_answer,
)
from shoal_wire.task_messages import (
    Bundle,
    BundleQuery,
    Piece,
    PieceQuery,
    TaskRefusal,
    TaskRefusalReason,
    bundle_file,
)
from shoal_wire.types import PeerId
from tests.p2p.bundles.cases import AUTHOR, JOINER, TransferFixture, author_spec
from tests.support.nodes import open_test_host

pytestmark = pytest.mark.virtual_time

BIG: dict[str, Any] = {"num_rows": 1000, "chars": 900}
"""About 4 pieces."""


def same_files(fixture: TransferFixture, folder: Path) -> bool:
    """Return whether a folder has the author's files and nothing else."""
    bundle = fixture.shared.bundle(fixture.spec.digest)
    assert bundle is not None
    expected = {
        one.name: path.read_bytes()
        for one, path in zip(bundle.files, files_here(fixture.spec), strict=True)
    }
    return {one.name: one.read_bytes() for one in folder.iterdir()} == expected


async def test_files_arrive_whole(tmp_path: Path) -> None:
    fixture = TransferFixture(spec=author_spec(tmp_path / "a", reward="reward.py", **BIG))
    (tmp_path / "j").mkdir()
    await fixture.fetch(tmp_path / "j")
    assert same_files(fixture, tmp_path / "j")
    assert len(fixture.here.requests) >= 6 and fixture.verdicts == []


@pytest.mark.parametrize("kept", [0, 1, TASK_PIECE_BYTES, 2 * TASK_PIECE_BYTES + 7])
@pytest.mark.parametrize("is_damaged", [False, True])
async def test_a_fetch_continues_where_it_stopped(
    tmp_path: Path, kept: int, is_damaged: bool
) -> None:
    fixture = TransferFixture(spec=author_spec(tmp_path / "a", **BIG))
    folder = tmp_path / "j"
    folder.mkdir()
    (source,) = files_here(fixture.spec)
    begun = bytearray(source.read_bytes()[:kept])
    if is_damaged and begun:
        begun[-1] ^= 1
    (folder / "rows.jsonl.part").write_bytes(begun)
    await fixture.fetch(folder)
    assert same_files(fixture, folder)
    queries = [decode_task_query(one.payload) for one in fixture.here.requests]
    pieces = [one.piece for one in queries if isinstance(one, PieceQuery)]
    first = (kept - (is_damaged and kept > 0)) // TASK_PIECE_BYTES
    assert pieces == list(range(first, pieces[-1] + 1))


async def test_a_peer_that_goes_in_the_middle_leaves_what_it_sent(tmp_path: Path) -> None:
    fixture = TransferFixture(spec=author_spec(tmp_path / "a", **BIG))
    (tmp_path / "j").mkdir()
    left = 3

    async def until_it_goes(peer_id: PeerId, request: bytes) -> bytes:
        nonlocal left
        left -= 1
        if left < 0:
            raise RequestError(RequestFailure.RESET, "gone")
        return await fixture.answer(peer_id, request)

    fixture.here.answers[TASKS_PROTOCOL] = until_it_goes
    with pytest.raises(NoBundleError, match="reset"):
        await fixture.fetch(tmp_path / "j")
    (part,) = (tmp_path / "j").iterdir()
    assert part.stat().st_size == 2 * TASK_PIECE_BYTES and fixture.verdicts == []
    fixture.here.answers[TASKS_PROTOCOL] = fixture.answer
    await fixture.fetch(tmp_path / "j")
    assert same_files(fixture, tmp_path / "j")


async def test_a_file_that_changes_is_shared_no_longer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fixture = TransferFixture(spec=author_spec(tmp_path / "a", reward="reward.py"))
    peer_id, bundle = await fixture.client.find(fixture.spec)
    (tmp_path / "a/reward.py").write_text("def reward(completions): return [1]\n")
    with pytest.raises(NoBundleError, match="not_shared"):
        await fixture.client.fetch(peer_id, fixture.spec, bundle, tmp_path / "j")
    assert "reward.py has changed, and is shared no longer" in caplog.text
    assert fixture.spec.digest not in fixture.shared and fixture.verdicts == []


async def test_only_what_its_author_shares_is_sent(tmp_path: Path) -> None:
    fixture = TransferFixture(spec=author_spec(tmp_path / "a", share=False))
    with pytest.raises(NoBundleError, match="no connected peer shares its files"):
        await fixture.fetch(tmp_path / "j")
    assert trio.current_time() > 20


async def test_who_asks_for_too_much_waits(tmp_path: Path) -> None:
    limits = TaskServeLimits(bytes_per_peer=Rate(burst=1, per_second=TASK_PIECE_BYTES))
    fixture = TransferFixture(spec=author_spec(tmp_path / "a", **BIG), limits=limits)
    (tmp_path / "j").mkdir()
    began = trio.current_time()
    await fixture.fetch(tmp_path / "j")
    assert same_files(fixture, tmp_path / "j")
    assert 2 < trio.current_time() - began < 20, "a piece a second"


async def test_a_request_that_cannot_be_read_costs_reputation(tmp_path: Path) -> None:
    fixture = TransferFixture(spec=author_spec(tmp_path / "a"))
    with pytest.raises(TaskProtocolError):
        await fixture.there.ask(JOINER, TASKS_PROTOCOL, b"\xff\xff")
    assert [peer_id for peer_id, _ in fixture.verdicts] == [JOINER]


HOSTILE = {
    "other files": lambda rng, _: Bundle(files=(bundle_file("rows.jsonl", rng.randbytes(9)),)),
    "false pieces": lambda _, honest: Bundle(
        files=(replace(honest.files[0], pieces=(bytes(32),) * len(honest.files[0].pieces)),)
    ),
    "false size": lambda _, honest: Bundle(files=(replace(honest.files[0], num_bytes=1 << 20),)),
    "a folder in a name": lambda _, honest: Bundle(
        files=(replace(honest.files[0], name="../rows.jsonl"),)
    ),
    "the description's name": lambda _, honest: Bundle(
        files=(replace(honest.files[0], name="task.json"),)
    ),
    "a file twice": lambda _, honest: Bundle(files=(honest.files[0],) * 2),
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_a_false_bundle_leaves_nothing_and_costs_its_sender(
    tmp_path: Path, kind: str
) -> None:
    fixture = TransferFixture(spec=author_spec(tmp_path / "a", **BIG))
    (tmp_path / "j").mkdir()

    async def lie(peer_id: PeerId, request: bytes) -> bytes:
        raw = await fixture.answer(peer_id, request)
        honest = decode_task_answer(raw)
        if not isinstance(honest, Bundle):
            return raw
        return encode_task_answer(HOSTILE[kind](random.Random(1), honest))

    fixture.here.answers[TASKS_PROTOCOL] = lie
    with pytest.raises(NoBundleError):
        await fixture.fetch(tmp_path / "j")
    assert list((tmp_path / "j").iterdir()) == []
    assert [peer_id for peer_id, _ in fixture.verdicts] == [AUTHOR]
    assert not (tmp_path / "rows.jsonl").exists()


def mutated(rng: random.Random, raw: bytes) -> bytes:
    """Return an answer with a few bytes changed, cut out, put in, or replaced whole."""
    made = bytearray(raw)
    at = rng.randrange(len(made))
    match rng.randrange(6):
        case 0:
            made[at] ^= 1 << rng.randrange(8)
        case 1:
            del made[at : at + rng.randrange(1, 400)]
        case 2:
            made[at:at] = rng.randbytes(rng.randrange(1, 400))
        case 3:
            return rng.randbytes(rng.randrange(2000))
        case 4:
            reason = rng.choice(list(TaskRefusalReason))
            return encode_task_answer(TaskRefusal(reason=reason, retry_after_ms=1 << 20))
        case _:
            return encode_task_answer(Piece(data=rng.randbytes(rng.randrange(1, TASK_PIECE_BYTES))))
    return bytes(made)


async def test_no_answer_of_a_peer_makes_a_wrong_file(tmp_path: Path) -> None:
    """300 fetches, each with one answer in it, at a random place, that was changed."""
    spec = author_spec(tmp_path / "a", reward="reward.py", **BIG)
    rng, outcomes = random.Random(11), {"whole": 0, "refused": 0}
    for number in range(300):
        fixture = TransferFixture(spec=spec)
        folder = tmp_path / str(number)
        folder.mkdir()
        at = rng.randrange(6)

        async def answer(
            peer_id: PeerId, request: bytes, fixture: TransferFixture = fixture, at: int = at
        ) -> bytes:
            raw = await fixture.answer(peer_id, request)
            return mutated(rng, raw) if len(fixture.here.requests) == at + 1 else raw

        fixture.here.answers[TASKS_PROTOCOL] = answer
        try:
            await fixture.fetch(folder)
        except NoBundleError:
            outcomes["refused"] += 1
            assert not any(one.name == "reward.py" for one in folder.iterdir()) or at > 4
        else:
            outcomes["whole"] += 1
            assert same_files(fixture, folder)
    assert outcomes["refused"] > 200 and outcomes["whole"] > 0, outcomes


async def test_no_request_of_a_peer_is_answered_with_another_file(tmp_path: Path) -> None:
    fixture = TransferFixture(spec=author_spec(tmp_path / "a", reward="reward.py", **BIG))
    rng, refused = random.Random(5), 0
    paths = files_here(fixture.spec)
    for _ in range(400):
        family = fixture.spec.digest if rng.random() < 0.8 else rng.randbytes(16)
        query = PieceQuery(family=family, file=rng.randrange(16), piece=rng.randrange(8))  # type: ignore[arg-type]
        data = fixture.shared.piece(query)
        if data is None:
            refused += 1
            continue
        start = query.piece * TASK_PIECE_BYTES
        assert data == paths[query.file].read_bytes()[start : start + TASK_PIECE_BYTES]
    assert 200 < refused < 400
    assert fixture.shared.bundle(BundleQuery(family=bytes(16)).family) is None  # type: ignore[arg-type]


@pytest.mark.virtual_time(False)
def test_between_real_hosts(tmp_path: Path) -> None:
    async def main() -> None:
        fixture = TransferFixture(spec=author_spec(tmp_path / "a", reward="reward.py", **BIG))
        (tmp_path / "j").mkdir()
        async with open_test_host() as there, open_test_host() as here:

            def report(*given: object) -> None:
                raise AssertionError(given)

            in_thread = trio.to_thread.run_sync
            TaskServer(
                host=there, shared=fixture.shared, report=report, in_thread=in_thread
            ).serve()
            client = TaskClient(host=here, report=report, in_thread=in_thread)
            await here.dial(there.listen_addrs()[0])
            peer_id, bundle = await client.find(fixture.spec)
            await client.fetch(peer_id, fixture.spec, bundle, tmp_path / "j")
        assert same_files(fixture, tmp_path / "j")

    trio.run(main)
