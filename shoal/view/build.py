"""Builds the view model of a node from its answers, and how it was started from its folder.

answers ─▶ right · learning · publishers · worth · rollouts · refused · now ─▶ `ShownPeer`
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from shoal.view.folder_follower import LatestAnswers
from shoal.view.invitation import chosen, lacks_of, line_of
from shoal.view.measured import is_it_learning
from shoal.view.model import Kind, LearningShown, NextStep, NodeView, Pace, ShownPeer
from shoal.view.publishers import me_of, publishers_of, short
from shoal.view.right import right_of
from shoal.view.worth import worth_of
from shoal_base.node_folders import NODE_FOLDER, newest_checkpoint
from shoal_base.visible import visible_name
from shoal_ipc.answers.doctor import Doctor
from shoal_ipc.answers.learning import Learning, Ledger
from shoal_ipc.answers.node import RolloutsView, Status, TrainerView
from shoal_ipc.answers.peer import Peers, Refusals
from shoal_ipc.answers.tasks import Tasks
from shoal_p2p.rollouts.network_shares import MAX_TRACKED
from shoal_settings.started_with import StartedWith, continuation, started_with


def view_of(answers: LatestAnswers) -> NodeView:
    """Return the view of answers alone, without what the peer's folder contains."""
    return NodeView(build(answers, data_dir="", at_unix=0.0), answers)


def build(
    answers: LatestAnswers, *, data_dir: str, at_unix: float, program: str = "shoal"
) -> ShownPeer:
    """Return the view model of the node in `data_dir`.

    `program` is what starts shoal here, for commands to copy.
    """
    status = answers.status or Status()
    begun = started_with(Path(data_dir)) if data_dir else None
    kind: Kind = status.role or _kind_of(begun)
    me = me_of(answers)
    is_up = answers.down_since_unix is None
    seen = answers.doctor or Doctor()
    settings = {} if begun is None else dict(begun.settings)
    return ShownPeer(
        kind=kind,
        name=visible_name(data_dir.rstrip("/").rpartition("/")[2] or data_dir),
        peer_id=me,
        short=short(me),
        data_dir=visible_name(data_dir),
        at_unix=at_unix,
        swarm=status.swarm,
        health=right_of(answers, at_unix=at_unix, kind=kind),
        learning=_learning(answers),
        publishers=publishers_of(answers) if kind == "node" else (),
        benefit=worth_of(answers, kind=kind),
        rollouts=(answers.rollouts or RolloutsView()).rollouts[::-1],
        refused=answers.refusals or Refusals(),
        added_tasks=(answers.tasks or Tasks()).tasks,
        next_steps=_now(answers, kind, data_dir, program) if data_dir else (),
        join_addresses=tuple(one.address for one in chosen(seen.facts.addresses))
        if kind != "node"
        else (),
        invitation=line_of(seen),
        invitation_lacks=lacks_of(seen),
        pace=_pace(answers, settings) if is_up else Pace(),
        sandbox=status.worker.sandbox,
        settings=settings,
        connections=(answers.peers or Peers()).peers[:MAX_TRACKED]
        if kind != "node" and is_up
        else (),
    )


def _kind_of(begun: StartedWith | None) -> Kind:
    """Return the kind of a peer that has left no status: a bootstrap leaves none."""
    if begun is not None and begun.name == "bootstrap":
        return "bootstrap"
    return "judge" if begun is not None and begun.name == "judge" else "node"


def _pace(answers: LatestAnswers, settings: Mapping[str, str]) -> Pace:
    """Return the speed of the latest rounds; `settings` has the number of rounds, 0 for no end."""
    run, rounds = answers.run, settings.get("rounds", "")
    last = int(rounds) if rounds.isdecimal() else 0
    if not run.seconds_per_round:
        return Pace()
    # `--round-seconds` makes a round wait after its work.
    seconds = max(run.seconds_per_round, _number(settings.get("round_seconds", "")))
    return Pace(
        rounds_per_minute=60 / seconds,
        tokens_per_second=None if run.tokens_per_round is None else run.tokens_per_round / seconds,
        remaining_s=max(0, last - run.round) * seconds if last else None,
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _learning(answers: LatestAnswers) -> LearningShown:
    """Return the second block; an empty one without a trainer."""
    status, run = answers.status or Status(), answers.run
    trainer = status.trainer or TrainerView()
    learning = trainer.learning or Learning()
    held_out, initial = trainer.held_out, trainer.held_out_initial
    if run.held_out is not None and (held_out is None or run.held_out.round > held_out.round):
        held_out, initial = run.held_out, initial or run.held_out_initial  # killed since
    round_number, reward_local = status.round or 0, trainer.reward_local
    is_down = answers.down_since_unix is not None
    if run.round and (is_down or (run.answer and run.round >= round_number)):
        # The same rounds as the answer's. A stopped node's status may be that of an earlier
        # end: one that is killed leaves none.
        round_number, reward_local = run.round, run.reward_local
    return LearningShown(
        state=learning.state,
        message=learning.message,
        round=round_number,
        reward_local=reward_local,
        reward_initial=trainer.reward_initial,
        held_out=held_out,
        held_out_initial=initial,
        answer=is_it_learning(initial, held_out) or run.answer,
        reward_local_ci95=run.reward_local_ci95,
        findings=learning.findings,
        families=(answers.ledger or Ledger()).families,
    )


def _now(answers: LatestAnswers, kind: Kind, data_dir: str, program: str) -> tuple[NextStep, ...]:
    """Return the commands that are useful next for this peer."""
    where, folder = f"--data-dir {shlex.quote(data_dir)}", Path(data_dir)
    out = shlex.quote(f"rollouts-of-{folder.name}")
    talk = NextStep(message="talk to its model", command=f"{program} chat {where}")
    has_model = newest_checkpoint(folder) is not None
    if answers.down_since_unix is not None:
        left = {
            "status": ("show its last status", answers.status),
            "debug ledger": ("show the publishers that it trained on", answers.ledger),
        }
        again = continuation(folder, program)
        if not again and folder == NODE_FOLDER and not folder.exists():
            again = f"{program} node"
        return (
            *([NextStep(message="start it again", command=again)] if again else []),
            *([talk] if has_model else []),
            *(
                NextStep(message=says, command=f"{program} {command} --last {where}")
                for command, (says, known) in left.items()
                if kind == "node" and known is not None
            ),
        )
    now = {
        "invite other nodes": f"invite {where}",
        "find problems": f"doctor {where}",
        "read the latest rollouts": f"debug rollouts {where}",
        "export the rollouts": f"export data --format jsonl {where} --out {out}",
    }
    steps = tuple(
        NextStep(message=says, command=f"{program} {command}")
        for says, command in list(now.items())[: None if kind == "node" else 2]
    )
    return (*steps, talk) if has_model else steps
