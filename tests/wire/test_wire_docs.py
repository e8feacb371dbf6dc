"""docs/wire.md says of names and limits what the code does."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from shoal_ipc import messages as m
from shoal_wire import judge, limits
from shoal_wire.judge_messages import (
    MAX_QUESTION_BYTES,
    MAX_RECORD_BYTES,
    MAX_RECORDS,
    JudgeRefusalReason,
)

TEXT = (Path(__file__).parents[2] / "docs" / "wire.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "constant",
    [
        limits.ENVELOPE_DOMAIN,
        limits.BATCH_PAYLOAD_TYPE.decode(),
        limits.MANIFEST_PROTOCOL,
        limits.PEERS_PROTOCOL,
        limits.ROLLOUTS_PROTOCOL,
        limits.ANNOUNCEMENT_PAYLOAD_TYPE.decode(),
        f"more than {limits.WHOLE_MESSAGE_BYTES} bytes",
        f"{limits.MAX_ANNOUNCEMENT_BYTES}\nbytes",
        f"at most {limits.MAX_REQUEST_BYTES} bytes; see below | {limits.MAX_ANSWER_BYTES} bytes",
        f"`max_batches` (1 to {limits.MAX_LISTED_BATCHES})",
        f"1 to {limits.MAX_WHOLE_BATCHES} batches by id",
        f"`length` (1 to {limits.MAX_CHUNK_BYTES})",
        f"{limits.TOPIC_PREFIX}/<swarm digest in hex>/rollouts/<shard>",
        f"`ipc_version` (now {m.IPC_VERSION})",
        f"1 to {limits.MAX_GROUPS_PER_BATCH}.",
        f"at most {limits.MAX_COMPLETIONS_PER_BATCH} in all",
        f"1024 to {limits.MAX_MESSAGE_BYTES}",
        f"1024 to {limits.MAX_BATCH_BYTES}",
        f"1 to {limits.MAX_COMPLETION_BYTES}",
        f"1 to {limits.MAX_NAME_BYTES} bytes",
        f"at most {limits.MAX_PEERS_IN_LIST} peers, {limits.MAX_ADDRS_PER_PEER} addresses each",
        judge.JUDGE_PROTOCOL,
        judge.RECORD_PAYLOAD_TYPE.decode(),
        f"at most {judge.MAX_JUDGE_REQUEST_BYTES} bytes",
        f"{judge.MAX_JUDGE_REPLY_BYTES} bytes",
        f"at most {MAX_QUESTION_BYTES} bytes",
        f"at most {MAX_RECORD_BYTES} bytes",
        f"`limit` (1 to {MAX_RECORDS})",
        *(f"`{reason.name}`" for reason in JudgeRefusalReason),
    ],
)
def test_names_and_limits_are_those_of_the_code(constant: str) -> None:
    assert constant in TEXT


def test_every_ipc_message_is_documented() -> None:
    for kind in get_args(m.Body):
        assert f"`{kind.__name__}`" in TEXT
