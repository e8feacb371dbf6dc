"""The verdict table: each change of a valid batch gets its reason, and docs/wire.md has each."""

from __future__ import annotations

import re

import pytest

from shoal_base.visible import visible_name
from shoal_wire.codec import PayloadError, decode_batch
from shoal_wire.envelope import EnvelopeError, open_envelope
from shoal_wire.manifest import Manifest
from shoal_wire.rules import check_batch, check_completion
from shoal_wire.verdict import Outcome, Reason, verdict
from tests.support import factories as make
from tests.support.site import page
from tests.wire.verdict_rows import INLINE_ROWS, NEED_THE_NODE, ROWS, VerdictRow

TEXT = page("wire.md")
SWARM, INLINE_SWARM = make.swarm(), make.swarm(allow_inline_tasks=True)
EVERY = [(row, SWARM) for row in ROWS] + [(row, INLINE_SWARM) for row in INLINE_ROWS]


@pytest.mark.parametrize(
    ("row", "manifest"),
    EVERY,
    ids=[("inline " if swarm is INLINE_SWARM else "") + row.name for row, swarm in EVERY],
)
def test_a_changed_batch_gets_the_reason_of_its_row(row: VerdictRow, manifest: Manifest) -> None:
    found = Reason.VALID
    try:
        opened = open_envelope(row.made_by(make.Author(manifest)))
        batch = decode_batch(opened.payload, max_bytes=manifest.rules.max_batch_bytes)
        rules = make.batch_rules(manifest)
        found = check_batch(batch, rules, now_ms=make.NOW_MS) or Reason.VALID
    except (EnvelopeError, PayloadError) as error:
        found = error.reason
    assert found is row.reason


def test_every_reason_is_played() -> None:
    played = {row.reason for row in ROWS}
    assert played | NEED_THE_NODE == set(Reason)
    assert not played & NEED_THE_NODE


def test_the_page_has_every_reason_with_its_verdict_and_who_pays() -> None:
    section = TEXT.split("\n## Verdicts\n")[1].split("\n## ")[0]
    texts = {}
    for name, outcome in re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|$", section, re.MULTILINE):
        texts[name] = outcome.strip()
    assert texts == {
        reason.value: ", ".join(
            [
                reason.row.outcome,
                *(["heavy"] if reason.row.heavy else []),
                *(["signer alone"] if reason.row.signer_alone else []),
            ]
        )
        for reason in Reason
        if reason is not Reason.VALID
    }


def test_the_contract_names_every_reason_and_the_receivers_own_trouble() -> None:
    words = " ".join(TEXT.split("\n## Verdicts\n")[1].split("\n| reason |")[0].split())
    kinds = [reason for reason in Reason if reason is not Reason.VALID]
    assert set(re.findall(r"`(\w+)`", words)) >= {reason.value for reason in kinds}
    own = words.split("own trouble (")[1].partition(")")[0]
    assert _named(own) == {one for one in kinds if one.row.ours} | {Reason.LEFT_TOPIC}


def _named(words: str) -> set[Reason]:
    found = re.findall(r"`(\w+)`", words)
    return {reason for reason in Reason if reason.value in found}


@pytest.mark.parametrize("reason", Reason)
def test_a_row_says_one_line_and_only_a_reject_costs(reason: Reason) -> None:
    row, judged = reason.row, verdict(reason)
    assert (judged.reason, judged.outcome, judged.heavy) == (reason, row.outcome, row.heavy)
    assert row.outcome is Outcome.REJECT or not (row.heavy or row.signer_alone)
    assert row.outcome is Outcome.IGNORE or not row.ours
    for text in (row.message, row.remedy):
        assert text == visible_name(text) and 0 < len(text) < 120 and text[0].islower()


def test_a_publisher_gets_an_error_for_a_lone_surrogate_before_it_shares() -> None:
    found = check_completion(make.completion("\ud800"), SWARM.rules)
    assert found is not None
    assert "surrogate" in found
