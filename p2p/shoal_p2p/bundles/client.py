"""Fetches a family's files from peers by `/shoal/tasks/1` and checks each piece on arrival.

    find ─▶ (peer, Bundle) ─ fetch ─▶ pieces ─ SHA-256 ─▶ NAME.part ─ whole, SHA-256 ─▶ NAME

The pieces of a file come from the peer that described them, so a piece that does not match the
description is that peer's fault. Pieces on disk are kept: another peer, or another start, continues
at the first missing piece.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import trio

from shoal_base.waits import POLL_S, RETRY_S
from shoal_p2p.net.interface import Host
from shoal_p2p.net.request import RequestError, RequestFailure
from shoal_p2p.reputation.scoring import Report
from shoal_p2p.threads import InThread
from shoal_tasks.bundle import bundle_error
from shoal_tasks.spec import FamilySpec
from shoal_wire.limits import MAX_TASK_ANSWER_BYTES, TASK_PIECE_BYTES, TASKS_PROTOCOL
from shoal_wire.task_codec import TaskProtocolError, decode_task_answer, encode_task_query
from shoal_wire.task_messages import (
    Bundle,
    BundleFile,
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
from shoal_wire.types import PeerId
from shoal_wire.verdict import Reason, verdict

log = logging.getLogger(__name__)

A = TypeVar("A", Bundle, Piece, Offers)

_REQUEST_S: Final = 20.0
_PART: Final = ".part"


class NoBundleError(Exception):
    """A peer does not send what was requested, for now or permanently."""


class TaskClient:
    """Requests the files of families from peers."""

    def __init__(
        self,
        *,
        host: Host,
        report: Report,
        in_thread: InThread,
        wait_s: float = 30.0,
        busy_s: float = 60.0,
    ) -> None:
        """`wait_s` bounds all searches for a peer that shares a family, in seconds: a manifest may
        name hundreds. `busy_s` bounds the requests for one piece to a peer that is busy."""
        self._host = host
        self._report = report
        self._in_thread = in_thread
        self._wait_s = wait_s
        self._busy_s = busy_s
        self._failures: Counter[PeerId] = Counter()
        """Fetches that a peer did not finish: the others are asked first."""
        self._refused: set[PeerId] = set()
        """Peers that sent something that no honest program sends."""

    async def find(self, spec: FamilySpec) -> tuple[PeerId, Bundle]:
        """Return a connected peer that shares a family, and its description of the files.

        Peers that connect later are asked, too, until this client's unsuccessful searches have
        taken `wait_s` seconds in total. Even then, each connected peer is asked once.

        Raises:
            NoBundleError: no peer shares it.
        """
        while True:
            began = trio.current_time()
            connected = self._host.connected_peers() - self._refused
            for peer_id in sorted(connected, key=lambda one: (self._failures[one], one)):
                bundle = await self._bundle(peer_id, spec)
                if bundle is not None:
                    return peer_id, bundle
            if self._wait_s <= 0:
                raise NoBundleError("no connected peer shares its files")
            await trio.sleep(min(RETRY_S, self._wait_s))
            self._wait_s -= trio.current_time() - began

    async def _bundle(self, peer_id: PeerId, spec: FamilySpec) -> Bundle | None:
        try:
            bundle = await self._ask(peer_id, BundleQuery(family=spec.digest), Bundle)
        except NoBundleError:
            return None
        if (why := bundle_error(spec, bundle)) != "":
            self.offend(peer_id, why)
            return None
        return bundle

    async def offers(self, peer_id: PeerId, query: OffersQuery) -> Offers:
        """Return the offers of a peer that the query does not name. Raises NoBundleError: none."""
        if peer_id in self._refused:
            raise NoBundleError("it sent what no honest program sends")
        return await self._ask(peer_id, query, Offers)

    async def fetch(
        self,
        peer_id: PeerId,
        spec: FamilySpec,
        bundle: Bundle,
        folder: Path,
        on_bytes: Callable[[int], None] = lambda _num_bytes: None,
    ) -> None:
        """Fetch into `folder` the files of a bundle that are sent.

        `on_bytes` is called with each new byte count.

        Raises:
            NoBundleError: the peer does not send them all; pieces received are kept.
            OSError: they cannot be written.
        """
        self._failures[peer_id] += 1
        for index, described in enumerate(bundle.files):
            path = folder / described.name
            if not bundle.is_sent(index):
                continue
            if await self._in_thread(_is_whole, path, described):
                on_bytes(described.num_bytes)
                continue
            part = path.with_name(described.name + _PART)
            first = await self._in_thread(_num_pieces, part, described)
            on_bytes(min(described.num_bytes, first * TASK_PIECE_BYTES))
            for number in range(first, len(described.pieces)):
                query = PieceQuery(family=spec.digest, file=index, piece=number)
                data = (await self._ask(peer_id, query, Piece)).data
                if hashlib.sha256(data).digest() != described.pieces[number]:
                    self.offend(peer_id, "a piece is not the one that it described")
                    raise NoBundleError("a wrong piece")
                await self._in_thread(_append, part, number, data)
                on_bytes(len(data))
            if not await self._in_thread(_finish, part, path, described):
                self.offend(peer_id, "its pieces do not make the family's file")
                raise NoBundleError("a wrong file")
        self._failures[peer_id] -= 1

    async def _ask(self, peer_id: PeerId, query: TaskQuery, kind: type[A]) -> A:
        """Return a peer's answer; retry while it is busy. Raises NoBundleError: no answer."""
        with trio.move_on_after(self._busy_s):
            while True:
                answer = await self._request(peer_id, query)
                if isinstance(answer, kind):
                    return answer
                if not isinstance(answer, TaskRefusal):
                    self.offend(peer_id, "it answers another question")
                    raise NoBundleError("another answer")
                if answer.reason is not TaskRefusalReason.BUSY:
                    raise NoBundleError(answer.reason.value)
                await trio.sleep(max(POLL_S, answer.retry_after_ms / 1000))
        raise NoBundleError("busy")

    async def _request(self, peer_id: PeerId, query: TaskQuery) -> TaskAnswer:
        try:
            raw = await self._host.request(
                peer_id,
                TASKS_PROTOCOL,
                encode_task_query(query),
                max_response_bytes=MAX_TASK_ANSWER_BYTES,
                timeout=_REQUEST_S,
            )
            return decode_task_answer(raw)
        except RequestError as error:
            if error.failure is RequestFailure.OVERSIZE:
                self.offend(peer_id, "its answer is too long")
            raise NoBundleError(error.failure.value) from None
        except TaskProtocolError as error:
            self.offend(peer_id, str(error))
            raise NoBundleError(str(error)) from None

    def offend(self, peer_id: PeerId, why: str) -> None:
        """Charge a peer for an answer that no honest program sends, and ask it no more."""
        log.warning("%s sends no usable task files: %s", peer_id, why)
        self._refused.add(peer_id)
        self._report(peer_id, peer_id, verdict(Reason.MALFORMED_ANSWER))


def _is_whole(path: Path, described: BundleFile) -> bool:
    return _digest(path) == described.sha256


def _digest(path: Path) -> bytes:
    """Return the SHA-256 of a file; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError:
        return b""


def _num_pieces(part: Path, described: BundleFile) -> int:
    """Return the number of valid pieces at the start of a partly fetched file."""
    try:
        with part.open("rb") as file:
            for number, digest in enumerate(described.pieces):
                if hashlib.sha256(file.read(TASK_PIECE_BYTES)).digest() != digest:
                    return number
    except OSError:
        return 0
    return len(described.pieces)


def _append(part: Path, number: int, data: bytes) -> None:
    part.parent.mkdir(parents=True, exist_ok=True)
    with part.open("r+b" if part.exists() else "wb") as file:
        file.seek(number * TASK_PIECE_BYTES)
        file.write(data)
        file.truncate()


def _finish(part: Path, path: Path, described: BundleFile) -> bool:
    """Rename a file if it is complete and as described; otherwise delete it. Raises OSError."""
    is_whole = _digest(part) == described.sha256
    if not is_whole or part.stat().st_size != described.num_bytes:
        part.unlink(missing_ok=True)
        return False
    part.replace(path)
    return True
