"""Serves `/shoal/tasks/1`: the files of families that this node shares, within quotas.

    request ─▶ quotas ─▶ decode ─▶ SharedTasks (descriptions in memory, files on disk) ─▶ answer

A request costs the peer that sends it one token, and an answer its bytes, by peer and by network,
as for batches (`shoal_p2p.fetch.server`).
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import trio

from shoal_base.ranges import Ranged
from shoal_base.visible import visible_name
from shoal_p2p.fair.buckets import AdaptiveRateLimit, KeyedBuckets, Rate
from shoal_p2p.net.interface import Host
from shoal_p2p.net.request import RequestLimits
from shoal_p2p.reputation.scoring import Report
from shoal_p2p.threads import InThread
from shoal_tasks.bundle import bundle_of, can_travel, files_here
from shoal_tasks.errors import FamilyError
from shoal_tasks.lint.attempts import Examples
from shoal_tasks.spec import FamilySpec
from shoal_tasks.task_file import examples_in, family_named_in
from shoal_wire.limits import MAX_REQUEST_BYTES, MAX_RETRY_MS, TASK_PIECE_BYTES, TASKS_PROTOCOL
from shoal_wire.task_codec import TaskProtocolError, decode_task_query, encode_task_answer
from shoal_wire.task_messages import (
    Bundle,
    BundleQuery,
    Offers,
    OffersQuery,
    Piece,
    PieceQuery,
    TaskAnswer,
    TaskQuery,
    TaskRefusal,
    TaskRefusalReason,
)
from shoal_wire.types import Digest, PeerId
from shoal_wire.verdict import Reason, verdict

log = logging.getLogger(__name__)

_LIMITS = RequestLimits(
    read_deadline_s=5.0,
    handle_deadline_s=10.0,
    write_deadline_s=15.0,
    max_concurrent=8,
    max_concurrent_per_peer=2,
)
"""At most 8 answers of 256 KiB in memory, each written within 15 s or reset."""

_NOT_SHARED = TaskRefusal(reason=TaskRefusalReason.NOT_SHARED)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskServeLimits(Ranged):
    """Rate limits for one peer, and for all networks together."""

    requests_per_peer: Annotated[Rate, "requests"] = Rate(burst=64, per_second=16)
    bytes_per_peer: Annotated[Rate, "bytes"] = Rate(burst=16 << 20, per_second=4 << 20)
    bytes_of_all: Annotated[Rate, "bytes"] = Rate(burst=32 << 20, per_second=8 << 20)


class SharedTasks:
    """The bundles of the families that this node shares."""

    def __init__(self) -> None:
        self._bundles: dict[Digest, tuple[Bundle, tuple[Path, ...]]] = {}

    def add(self, spec: FamilySpec, examples: Examples | None = None) -> None:
        """Share a family from now on, if its author allows it. Blocks.

        Files that cannot be read, or are too large, are not shared; the log says why.
        """
        if not (spec.share and can_travel(spec)):
            return
        try:
            self._bundles[spec.digest] = bundle_of(spec, examples), files_here(spec)
        except FamilyError as error:
            log.warning("the files of %s are not shared: %s", visible_name(spec.name), error)

    def remove(self, family: Digest) -> None:
        """Stop sharing a family."""
        self._bundles.pop(family, None)

    def __contains__(self, family: object) -> bool:
        return family in self._bundles

    def bundle(self, family: Digest) -> Bundle | None:
        """Return the description of a family's files; None if they are not shared."""
        found = self._bundles.get(family)
        return None if found is None else found[0]

    def piece(self, query: PieceQuery) -> bytes | None:
        """Return the bytes of a piece as shared; None if there is none.

        Blocks. Stops sharing a family if one of its files has changed.
        """
        found = self._bundles.get(query.family)
        if found is None or not found[0].is_sent(query.file):
            return None
        bundle, paths = found
        try:
            described = bundle.files[query.file]
            digest = described.pieces[query.piece]
        except IndexError:
            return None
        data = _read(paths[query.file], query.piece)
        if hashlib.sha256(data).digest() == digest:
            return data
        log.warning("%s has changed, and is shared no longer", paths[query.file])
        self.remove(query.family)
        return None


def _read(path: Path, piece: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(piece * TASK_PIECE_BYTES)
            return file.read(TASK_PIECE_BYTES)
    except OSError:
        return b""


class TaskServer:
    """Answers requests for task files."""

    def __init__(
        self,
        *,
        host: Host,
        shared: SharedTasks,
        report: Report,
        in_thread: InThread,
        offers: Callable[[OffersQuery], Offers] = lambda _query: Offers(),
        limits: TaskServeLimits | None = None,
    ) -> None:
        """`offers` answers what members add to the swarm."""
        limits = limits or TaskServeLimits()
        self._host = host
        self._shared = shared
        self._report = report
        self._in_thread = in_thread
        self._offers = offers
        self._requests: KeyedBuckets[PeerId] = KeyedBuckets(limits.requests_per_peer)
        self._bytes: KeyedBuckets[PeerId] = KeyedBuckets(limits.bytes_per_peer)
        self._of_all = AdaptiveRateLimit(limits.bytes_of_all, trio.current_time())

    def serve(self) -> None:
        """Start answering requests."""
        self._host.set_request_handler(
            TASKS_PROTOCOL, self.answer, max_request_bytes=MAX_REQUEST_BYTES, limits=_LIMITS
        )

    async def answer(self, peer_id: PeerId, raw: bytes) -> bytes:
        """Answer one request.

        Raises:
            TaskProtocolError: the request breaks the protocol; the stream is to be reset.
        """
        now, network = trio.current_time(), self._host.source_of(peer_id)
        wait_s = max(
            self._requests.get(peer_id, now).wait_s(1, now),
            self._bytes.get(peer_id, now).wait_s(1, now),
            self._of_all.wait_s(network, now),
        )
        if wait_s > 0:
            retry_ms = min(MAX_RETRY_MS, math.ceil(1000 * wait_s))
            busy = TaskRefusal(reason=TaskRefusalReason.BUSY, retry_after_ms=retry_ms)
            return encode_task_answer(busy)
        self._requests.get(peer_id, now).take(1, now)
        try:
            query = decode_task_query(raw)
        except TaskProtocolError:
            self._report(peer_id, peer_id, verdict(Reason.BAD_REQUEST))
            raise
        encoded = encode_task_answer(await self._find(query))
        self._bytes.get(peer_id, now).take(len(encoded), now)
        self._of_all.take(network, len(encoded), now)
        return encoded

    async def _find(self, query: TaskQuery) -> TaskAnswer:
        if isinstance(query, OffersQuery):
            await trio.lowlevel.checkpoint()
            return self._offers(query)
        if isinstance(query, BundleQuery):
            await trio.lowlevel.checkpoint()
            return self._shared.bundle(query.family) or _NOT_SHARED
        data = await self._in_thread(self._shared.piece, query)
        return Piece(data=data) if data else _NOT_SHARED


def share_families(
    shared: SharedTasks, families: Iterable[FamilySpec], task_files: Sequence[str]
) -> None:
    """Share a node's families that allow it, with their authors' examples. Blocks."""
    for spec in families:
        if spec.share:
            shared.add(spec, _examples(spec, task_files))


def _examples(spec: FamilySpec, task_files: Sequence[str]) -> Examples:
    for file in task_files:
        path = Path(file)
        try:
            if family_named_in(path) == spec.name:
                return examples_in(path)
        except FamilyError:
            continue
    return Examples()
