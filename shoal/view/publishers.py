"""From whom? Everybody who answers or could, the node itself first. Pure."""

from __future__ import annotations

from typing import Any

from shoal.view.answers import Answer, Answers
from shoal.view.model import PublisherShown, Standing
from shoal.view.reading import name, part, real, rows, whole

MAX_PUBLISHERS = 256
DOUBTED_WEIGHT = 0.5
"""Below this factor on its groups' chance of being drawn a peer is doubted."""
DOUBTED_SCORE = -1.0


def short(peer_id: str) -> str:
    """Return the end of a peer id, as tables print it."""
    return peer_id[-10:]


def me_of(answers: Answers) -> str:
    """Return the node's own id; of one that was killed its ledger may be all that says it."""
    own = (row for row in rows(answers.ledger, "publishers") if row.get("own") is True)
    return name(answers.status or {}, "peer_id") or next((name(one, "peer_id") for one in own), "")


def publishers_of(answers: Answers) -> tuple[PublisherShown, ...]:
    """Return the table: oneself, then by what was learnt, then by what came."""
    me = me_of(answers)
    sources: dict[str, dict[str, Answer]] = {}
    for source, of, key in (
        ("peer", answers.peers, "peers"),
        ("score", answers.scores, "scores"),
        ("given", answers.contributions, "peers"),
        ("kept", answers.buffer, "publishers"),
        ("learnt", answers.ledger, "publishers"),
        ("said", answers.rollouts, "rollouts"),
    ):
        for row in rows(of, key):
            peer_id = name(row, "publisher" if source == "said" else "peer_id")
            if peer_id:
                sources.setdefault(peer_id, {})[source] = row
    if me:
        sources.setdefault(me, {})
    found = [_row(peer_id, of, answers, me=me) for peer_id, of in sources.items()]
    found = [one for one in found if one.connected or one.mine or _has_answered(one)]
    found.sort(key=lambda one: (not one.mine, -one.signal, -one.received, one.peer_id))
    return tuple(found[:MAX_PUBLISHERS])


def _has_answered(one: PublisherShown) -> bool:
    return bool(one.received or one.trained or one.drawn or one.verdict_state != "fine")


def _row(peer_id: str, of: dict[str, Answer], answers: Answers, *, me: str) -> PublisherShown:
    mine = peer_id == me
    empty: dict[str, Any] = {}
    peer, score = of.get("peer", empty), of.get("score", empty)
    given, learnt = of.get("given", empty), of.get("learnt", empty)
    own = part(answers.contributions, "own")
    said = of.get("said", empty)
    trainer = part(answers.status or {}, "trainer")
    newest = [real(learnt, "last_s"), real(of.get("kept", empty), "newest_s")]
    return PublisherShown(
        peer_id=peer_id,
        short=short(peer_id),
        name="this node" if mine else "",
        model=(name(trainer, "model") if mine else "")
        or name(learnt, "model")
        or name(said, "model"),
        mine=mine,
        connected=mine or bool(peer) or score.get("connected") is True,
        relayed=peer.get("relayed") is True,
        latency_ms=real(peer, "latency_ms"),
        verdict_state=_standing(score, mine=mine),
        received=whole(own, "contributed") if mine else whole(given, "contributed"),
        drawn=0 if mine else whole(given, "drawn"),
        trained=whole(learnt, "trained"),
        signal=real(learnt, "signal") or 0.0,
        trained_10m=whole(learnt, "trained_10m"),
        reward=real(learnt, "reward"),
        last_s=min((one for one in newest if one is not None), default=None),
        sampling_weight=None if mine else _weight(given, score),
        banned_s=real(score, "banned_s"),
    )


def _weight(given: Answer, score: Answer) -> float | None:
    weight = real(given, "weight")
    return real(score, "sampling_weight") if weight is None else weight


def _standing(score: Answer, *, mine: bool) -> Standing:
    if mine:
        return "me"
    if score.get("blocked") is True:
        return "blocked"
    if real(score, "banned_s") is not None:
        return "banned"
    weight, points = real(score, "sampling_weight"), real(score, "score")
    doubted = (weight is not None and weight < DOUBTED_WEIGHT) or (points or 0.0) < DOUBTED_SCORE
    return "doubted" if doubted else "fine"
