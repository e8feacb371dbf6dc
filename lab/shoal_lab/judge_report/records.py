"""Reads a report's records from a judge's folder, or from the judge itself. Each is verified."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import trio

from shoal_p2p.data_dir import IDENTITY_FILE
from shoal_p2p.judge.store import JUDGE_FILE, JudgeStoreError, read_records
from shoal_p2p.net.address import parse_peer_address
from shoal_p2p.net.host import DialError, HostSettings, Libp2pHost, RequestError
from shoal_p2p.net.identity import identity_from_seed, load_or_create_identity
from shoal_p2p.net.swarm import SwarmSettings
from shoal_wire.errors import RemoteError
from shoal_wire.judge import (
    JUDGE_PROTOCOL,
    MAX_JUDGE_REPLY_BYTES,
    decode_reply,
    encode_request,
    open_record,
)
from shoal_wire.judge_messages import JudgeRecord, JudgeRefusal, RecordList, RecordQuery
from shoal_wire.types import PeerId

MAX_RECORDS_READ = 1_000_000  # a guess: bounds the memory that a judge can take
_REPLY_SECONDS = 20.0  # a page of records over a slow link; a guess
_PATIENCE_SECONDS = 120.0
"""Longest wait for a judge that keeps answering that it is busy."""


class RecordsError(Exception):
    """No records to report on; one line."""


class NoJudgeError(RecordsError):
    """No judge has been in the folder that was named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Records that a judge has signed."""

    judge: PeerId
    good: tuple[JudgeRecord, ...]
    """Verified records, sorted by number."""
    refused: int
    """Records that are damaged, not signed by the judge, or reuse a number."""

    @property
    def missing(self) -> int:
        """Missing numbers between the first and the last."""
        if not self.good:
            return 0
        return self.good[-1].number - self.good[0].number + 1 - len(self.good)


def records_in(data_dir: Path) -> Records:
    """Read the records in a judge's folder; it may be running. Raises RecordsError."""
    if not (data_dir / IDENTITY_FILE).is_file():
        raise NoJudgeError(f"no judge has been in {data_dir}; name its --data-dir")
    try:
        judge = load_or_create_identity(data_dir / IDENTITY_FILE).peer_id
        return verified(judge, read_records(data_dir / JUDGE_FILE))
    except JudgeStoreError as error:
        raise RecordsError(str(error)) from None


def verified(judge: PeerId, envelopes: Iterable[bytes]) -> Records:
    """Sort envelopes into the judge's own records and others."""
    good: dict[int, JudgeRecord] = {}
    refused = 0
    for envelope in envelopes:
        try:
            record = open_record(envelope, judge=judge)
        except RemoteError:
            refused += 1
            continue
        if good.setdefault(record.number, record) != record:
            refused += 1
    ordered = tuple(good[number] for number in sorted(good))
    return Records(judge=judge, good=ordered, refused=refused)


async def fetch_records(address: str, *, key: bytes | None = None) -> Records:
    """Ask the judge at a full multiaddress for all its records, a page at a time.

    Raises:
        RecordsError: it cannot be reached, or violates the protocol.
    """
    try:
        judge = parse_peer_address(address).peer_id
    except ValueError as error:
        raise RecordsError(f"{address!r} is not a judge's address: {error}") from None
    host = Libp2pHost(
        identity=identity_from_seed(os.urandom(32)),
        settings=HostSettings(listen=("/ip4/127.0.0.1/tcp/0",), swarm=SwarmSettings(key=key)),
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(host.run)
        found = await _dial_and_read(host, address, judge)
        await host.close()
        nursery.cancel_scope.cancel()
    if isinstance(found, RecordsError):
        raise found  # here, so that no exception group wraps it
    return await trio.to_thread.run_sync(verified, judge, found)


async def _dial_and_read(
    host: Libp2pHost, address: str, judge: PeerId
) -> list[bytes] | RecordsError:
    try:
        await host.dial(address)
        return await _all_pages(host, judge)
    except (DialError, RequestError, RemoteError) as error:
        return RecordsError(str(error))


async def _all_pages(host: Libp2pHost, judge: PeerId) -> list[bytes]:
    found: list[bytes] = []
    after = 0
    busy_until = trio.current_time() + _PATIENCE_SECONDS
    while len(found) < MAX_RECORDS_READ:
        raw = await host.request(
            judge,
            JUDGE_PROTOCOL,
            encode_request(RecordQuery(after=after)),
            max_response_bytes=MAX_JUDGE_REPLY_BYTES,
            timeout=_REPLY_SECONDS,
        )
        reply = decode_reply(raw)
        if isinstance(reply, JudgeRefusal) and trio.current_time() < busy_until:
            await trio.sleep(max(0.05, reply.retry_after_ms / 1000))
            continue
        if not isinstance(reply, RecordList):
            raise RemoteError(f"the judge answers with a {type(reply).__name__}")
        if not reply.envelopes:
            return found
        found += reply.envelopes
        last = open_record(reply.envelopes[-1], judge=judge).number
        if last <= after:
            raise RemoteError("the judge's pages do not go on")
        after = last
        busy_until = trio.current_time() + _PATIENCE_SECONDS
    return found
