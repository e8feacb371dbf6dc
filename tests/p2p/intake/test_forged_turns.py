"""Forged games on the way of a stranger's batch: envelope, intake, buffer, trainer's scorer.

`tests/tasks/worker/test_forged_games.py` forges what the worker is given; here the whole group is
forged: its texts, how it says they ended, whose task and which seed it names.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_p2p.buffer.replay import ReplayBuffer
from shoal_p2p.buffer.types import BufferEntry, InsertOutcome
from shoal_p2p.intake.validation import Rejected, open_message, open_payload
from shoal_p2p.rollouts.groups import published_groups
from shoal_tasks.families import EASY, TRAIN_SEED_MIN
from shoal_tasks.sandbox.audit import AuditGuard
from shoal_tasks.spec import FamilySpec
from shoal_tasks.swarm import families_of
from shoal_tasks.turns import SEPARATOR, join_messages, split_messages
from shoal_tasks.types import Split
from shoal_tasks.worker.environment import EnvironmentTasks, load_game
from shoal_tasks.worker.item_limit import ItemLimit
from shoal_wire.digests import question_digest
from shoal_wire.limits import MAX_SEED
from shoal_wire.manifest import Manifest, SwarmRules, make_manifest
from shoal_wire.types import Completion, FinishReason, PublishedGroup, RolloutGroup, Task
from tests.p2p.buffer.entries import limits
from tests.support import factories as make
from tests.tasks.games import GUESS, game_family

CASES = 150
"""Forged groups at the pure level, of four to seven games each."""
MAX_TURNS = 5
FIRST = "Guess a number from 1 to 6."
SEEDS = 40
GCD = next(spec for spec in EASY if spec.generator == "gcd")

ODD = (" ", "\n", "٣", "²", "é☃", "\U0001f600", "\r\x1b[31m", "\x1f", "0", "-1", "9" * 500)
message = st.sampled_from([*"123456", *"123456", "", *ODD]) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=SEPARATOR + "\0"), max_size=8
)
texts = st.one_of(
    st.lists(message, min_size=1, max_size=MAX_TURNS + 3).map(join_messages),
    st.permutations("123456").map(join_messages),  # continues after the end
    st.integers(1, 300).map(lambda count: SEPARATOR * count),  # turns of nothing
    st.integers(1, 60).map(lambda count: join_messages(["1" * 500] * count)),  # giant
).filter(bool)
refused_texts = st.sampled_from(["", "x" * 40_000, "1\0", SEPARATOR * 40_000])


def completions(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Completion]:
    return st.builds(
        Completion,
        text=texts,
        num_tokens=st.integers(1, 12),
        finish_reason=st.sampled_from(FinishReason),
    )


@functools.cache
def game_tasks(folder: Path) -> EnvironmentTasks:
    spec = game_family(folder, max_turns=MAX_TURNS)
    limit = ItemLimit(5.0)
    guard = AuditGuard()
    return EnvironmentTasks(spec, load_game(spec, GUESS.encode(), limit, guard), limit, guard)


@st.composite
def forged_groups(draw: st.DrawFn, spec: FamilySpec) -> RolloutGroup:
    """A group that names the game, another seed's, another family's, or none's."""
    task = make.task_of(spec, TRAIN_SEED_MIN + draw(st.integers(0, SEEDS - 1)), FIRST)
    changes: dict[str, Any] = draw(
        st.sampled_from(
            [
                *[{}] * 10,
                {"seed": task.seed + 1},
                {"seed": 3},  # kept for evaluation
                {"seed": MAX_SEED},
                {"index": 1},
                {"family": GCD.name},
                {"family": GCD.name, "config_digest": GCD.digest},
                {"config_digest": GCD.digest},
                {"family": "chess"},
                {"verifier": "exact"},
                {"verifier_version": "9"},
                {"question_digest": question_digest("Guess a number from 1 to 7.")},
            ]
        )
    )
    found = draw(st.lists(completions(texts), min_size=4, max_size=6))
    if draw(st.sampled_from([False] * 7 + [True])):
        found.append(draw(completions(refused_texts)))
    return RolloutGroup(task=replace(task, **changes), completions=tuple(found))


def swarm_of(spec: FamilySpec) -> Manifest:
    return make_manifest("games", families_of((*EASY, spec)), SwarmRules())


def taken_in(raw: bytes, author: make.Author, context: object) -> Sequence[PublishedGroup]:
    """Return the groups of a message that the intake accepts; none where it is refused."""
    try:
        envelope = open_message(raw, author=author.peer_id, context=context)  # type: ignore[arg-type]
        signed = open_payload(
            envelope,
            author=author.peer_id,
            context=context,  # type: ignore[arg-type]
            now_ms=make.NOW_MS,
        )
    except Rejected:
        return ()
    return published_groups(signed)


def drawn_again(groups: Sequence[PublishedGroup]) -> list[PublishedGroup]:
    """Groups as they come out of a replay buffer."""
    buffer = ReplayBuffer(limits(), random.Random(1))
    for group in groups:
        entry = BufferEntry(group=group, received_at=0.0, num_bytes=100)
        assert buffer.insert(entry, 0.0) is InsertOutcome.STORED
    leased = buffer.lease(len(groups), holder="trainer", now=0.0, lease_seconds=1.0)
    return [entry.group for entry in leased]


def earned(tasks: EnvironmentTasks, task: Task, one: Completion) -> float:
    return tasks.score(task.seed, task.index, one.text, one.finish_reason)


def deserved(tasks: EnvironmentTasks, task: Task, one: Completion) -> float:
    """The reward by the rules of a game, from a replay of the messages."""
    messages = split_messages(one.text)
    play = tasks.play(task.seed, task.index, messages)
    went_on = play.error or len(play.observations) < len(messages)
    claimed = one.finish_reason is FinishReason.STOP and not play.done
    return 0.0 if went_on or claimed else play.reward


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("forged")


def test_what_intake_lets_in_is_what_was_signed_and_earns_its_own_replay(folder: Path) -> None:
    tasks = game_tasks(folder)
    manifest = swarm_of(tasks.spec)
    context = make.context(manifest, make.fresh_identity().peer_id)
    author = make.Author(manifest)
    counted = {"in": 0, "out": 0, "games": 0}

    @settings(max_examples=CASES, derandomize=True, database=None)
    @given(group=forged_groups(tasks.spec))
    def holds(group: RolloutGroup) -> None:
        groups = drawn_again(taken_in(author.envelope(author.batch([group])), author, context))
        counted["in" if groups else "out"] += 1
        for published in groups:
            assert published.group == group
            task = published.group.task
            assert tasks.item(task.seed, task.index).entry["question"] == FIRST
            assert task.seed >= TRAIN_SEED_MIN
            for one in published.group.completions:
                counted["games"] += 1
                assert earned(tasks, task, one) == deserved(tasks, task, one), one

    holds()
    assert min(counted["in"], counted["out"]) > CASES // 5, counted
    assert counted["games"] > CASES, counted


def honest_group(tasks: EnvironmentTasks, dice: random.Random) -> RolloutGroup:
    """Games as policies play them."""
    seed = next(
        seed
        for seed in iter(lambda: TRAIN_SEED_MIN + dice.randrange(10_000), None)
        if tasks.item(seed, 0).part is Split.TRAINING
    )
    games = []
    for _ in range(dice.randint(2, 6)):
        messages: list[str] = []
        done = False
        while len(messages) < MAX_TURNS and not done:
            messages.append(dice.choice([*"123456", "é☃", "I say 3"]))
            done = tasks.play(seed, 0, messages).done
        finish = FinishReason.STOP if done else FinishReason.LENGTH
        games.append(Completion(text=join_messages(messages), num_tokens=9, finish_reason=finish))
    return RolloutGroup(task=make.task_of(tasks.spec, seed, FIRST), completions=tuple(games))


def test_no_honest_game_is_refused_or_changed(folder: Path) -> None:
    tasks, dice = game_tasks(folder), random.Random(4)
    manifest = swarm_of(tasks.spec)
    context = make.context(manifest, make.fresh_identity().peer_id)
    author = make.Author(manifest)
    for _ in range(CASES // 4):
        group = honest_group(tasks, dice)
        batch = author.batch([group])
        (published,) = drawn_again(taken_in(author.envelope(batch), author, context))
        assert published.group == group
        for one in group.completions:
            play = tasks.play(group.task.seed, 0, split_messages(one.text))
            assert earned(tasks, group.task, one) == play.reward
