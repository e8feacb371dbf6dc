"""Builds the table of publishers, this node first. No I/O of its own."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from shoal.view.folder_follower import LatestAnswers
from shoal.view.model import PublisherShown, Reputation
from shoal_ipc.answers.learning import Ledger, PublisherStats
from shoal_ipc.answers.node import Buffer, PublisherRow, RolloutsView, Status, TrainerView
from shoal_ipc.answers.peer import Connection, Peers, Score, Scores
from shoal_p2p.rollouts.network_shares import MAX_TRACKED

_PEER_ID: Final = re.compile(r"\b12D3KooW[1-9A-HJ-NP-Za-km-z]{44}\b")
DOUBTED_WEIGHT: Final = 0.5
"""Sampling weight below which a peer is shown as doubted."""
DOUBTED_SCORE: Final = -1.0
"""Score below which it is, too; one small offence decays within minutes."""


def short(peer_id: str) -> str:
    """Return the end of a peer id, as tables print it."""
    return peer_id[-10:]


def with_short_ids(text: str) -> str:
    """Return a sentence with its peer ids shortened to their last characters."""
    return _PEER_ID.sub(lambda found: f"…{short(found[0])}", text)


def me_of(answers: LatestAnswers) -> str:
    """Return the node's own id, from its status, or from its ledger without one."""
    own = (row.peer_id for row in (answers.ledger or Ledger()).publishers if row.is_local)
    return (answers.status or Status()).peer_id or next(own, "")


def publishers_of(answers: LatestAnswers) -> tuple[PublisherShown, ...]:
    """Return the table: this node, then by groups trained on, then by groups received."""
    me = me_of(answers)
    peers = {one.peer_id: one for one in (answers.peers or Peers()).peers}
    scores = {one.peer_id: one for one in (answers.scores or Scores()).scores}
    status = answers.status or Status()
    stored = {one.peer_id: one for one in (answers.buffer or Buffer()).publishers}
    trained = {one.peer_id: one for one in (answers.ledger or Ledger()).publishers}
    models = {one.publisher: one.model for one in (answers.rollouts or RolloutsView()).rollouts}
    if me:
        stored[me] = replace(stored.get(me, PublisherRow()), received=status.groups_published or 0)
        models[me] = (status.trainer or TrainerView()).model or models.get(me, "")
    found = [
        _row(
            peer_id,
            peers.get(peer_id),
            scores.get(peer_id, Score()),
            stored.get(peer_id, PublisherRow()),
            trained.get(peer_id, PublisherStats()),
            model=models.get(peer_id, ""),
            me=me,
        )
        for peer_id in {**peers, **scores, **stored, **trained, **models}
        if peer_id
    ]
    found = [
        one
        for one in found
        if one.connected
        or one.received
        or one.groups_trained
        or one.sampled
        or one.reputation != "fine"
    ]
    found.sort(key=lambda one: (not one.is_local, -one.signal, -one.received, one.peer_id))
    return tuple(found[:MAX_TRACKED])


def _row(
    peer_id: str,
    peer: Connection | None,
    score: Score,
    stored: PublisherRow,
    trained: PublisherStats,
    *,
    model: str,
    me: str,
) -> PublisherShown:
    mine = peer_id == me
    return PublisherShown(
        peer_id=peer_id,
        short=short(peer_id),
        name="this node" if mine else "",
        model=(model if mine else "") or trained.model or model,
        is_local=mine,
        connected=mine or peer is not None or score.connected,
        relayed=peer is not None and peer.relayed,
        latency_ms=None if peer is None else peer.latency_ms,
        reputation="me" if mine else _reputation(score),
        received=stored.received,
        sampled=0 if mine else stored.sampled,
        groups_trained=trained.groups_trained,
        signal=trained.signal,
        reward=trained.reward,
        banned_s=score.banned_s,
    )


def _reputation(score: Score) -> Reputation:
    if score.blocked:
        return "blocked"
    if score.banned_s is not None:
        return "banned"
    weight = 1.0 if score.sampling_weight is None else score.sampling_weight
    return "doubted" if weight < DOUBTED_WEIGHT or score.score < DOUBTED_SCORE else "fine"
