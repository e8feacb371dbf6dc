"""A swarm, joined through a node of this program on this machine.

    tasks ─▶ questions ─▶ (answered by you) ─▶ publish ─▶ on the node's disk ─▶ peers
    draw ─▶ leased ─▶ verify ─▶ (trained on, saved) ─▶ acknowledge ─▶ never drawn again
               └──────────────▶ release, or the end of the connection ─▶ may be drawn again

It wraps the parts that shoal's own trainer uses: `shoal_policy.node` talks to the node, and
`shoal_policy.tasks` draws questions and verifies in the sandboxed worker. Blocking, for one thread.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from shoal.api.groups import Group, LeasedGroup, SwarmError, own_group
from shoal.node_link import UNKNOWN_SAMPLING, fault_of_author
from shoal.started_peer import StartedPeer
from shoal_ipc import messages as m
from shoal_ipc.client import NodeClient, NodeRefused, NodeUnavailable
from shoal_policy.node.link import NodeLink
from shoal_policy.rollouts import Question, publish_requests, shareable
from shoal_policy.tasks import MissingReward, TaskSource, fill_zeros
from shoal_tasks.prompts import messages_for
from shoal_tasks.spec import FamilySpec
from shoal_tasks.types import Split
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.manifest import Manifest, SwarmRules
from shoal_wire.rules import is_reserved
from shoal_wire.types import Digest, GroupId, PeerId, PolicyInfo, SamplingParams


class Swarm:
    """A swarm, joined through a node. `shoal.connect` returns it; a context manager."""

    def __init__(
        self,
        *,
        client: NodeClient,
        manifest: Manifest,
        families: Sequence[FamilySpec],
        data_dir: Path,
        why_no_draw: str,
        node: StartedPeer | None = None,
    ) -> None:
        """`why_no_draw` is empty if this program may lease groups as the node's trainer."""
        self._client, self._manifest, self._node = client, manifest, node
        self._why_no_draw = why_no_draw
        self._link = NodeLink(client)
        self._worker = SyncTaskWorker(families)  # started by its first question
        self._tasks = TaskSource(self._worker, families)
        self.data_dir = data_dir
        """The node's folder."""

    @property
    def name(self) -> str:
        """The swarm's name, as its founder wrote it."""
        return self._manifest.swarm_name

    @property
    def peer_id(self) -> PeerId:
        """The id by which peers know the node."""
        return self._link.peer_id

    @property
    def connected(self) -> bool:
        """True if the node answered the last call. Every call reconnects if necessary."""
        return self._client.connected

    @property
    def families(self) -> tuple[str, ...]:
        """The names of the swarm's task families."""
        return self._tasks.names

    @property
    def rules(self) -> SwarmRules:
        """Limits of what peers accept, such as the completions of a group."""
        return self._manifest.rules

    def status(self) -> dict[str, Any]:
        """Return the node's status: the keys of `shoal status --json`.

        Raises:
            SwarmError: the node does not answer now.
        """
        try:
            return self._client.inspect("status")
        except (NodeUnavailable, NodeRefused) as error:
            raise SwarmError(str(error)) from None

    def tasks(self, count: int, *, seed: int | None = None) -> list[Question]:
        """Generate `count` fresh questions, from families by the swarm's weights.

        The same seed yields the same questions. Raises `TaskError` if the worker fails.
        """
        rng = random.SystemRandom() if seed is None else random.Random(seed)
        return self._tasks.draw(rng, count)

    def messages(self, question: Question) -> list[dict[str, str]]:
        """Return the chat that asks a question, in the form that its verifier expects."""
        return messages_for(question.text, tagged=question.tagged, system=question.system)

    def publish(
        self,
        groups: Sequence[Group],
        *,
        author: str = "script",
        version: int = 0,
        round_number: int = 0,
        sampling: SamplingParams = UNKNOWN_SAMPLING,
        wait: bool = True,
    ) -> bool:
        """Publish groups; return whether everything published so far is on the node's disk.

        False means that the node does not answer or accepts no more now: the groups wait in this
        process, and every later call retries. `wait=False` sends without waiting for the
        disk, as a training loop does, and returns False; `publish([])` waits later.

        Groups that were published before change nothing. `author` is the model's name, and
        `version` counts its updates: peers read both.

        Raises:
            SwarmError: peers would reject a group; none is published.
        """
        if (fault := fault_of_author(author)) is not None:
            raise SwarmError(fault)
        for number, group in enumerate(groups):
            if is_reserved(group.question.task):
                raise SwarmError(f"group {number}: its question is held out for evaluation")
        rules = self._manifest.rules
        own = [own_group(number, group, rules) for number, group in enumerate(groups)]
        dropped = self._link.counts.batches_dropped
        for batch in publish_requests(
            [shared for one in own if (shared := shareable(one, rules)) is not None],
            round_number=round_number,
            policy=PolicyInfo(
                model_name=author, tokenizer_digest=Digest(b""), policy_version=version
            ),
            sampling=sampling,
        ):
            self._link.share(batch)
        is_done = wait and self._link.flush()
        if self._link.counts.batches_dropped > dropped:
            raise SwarmError(
                "the node refused a batch, or the send queue is full: see this program's log"
            )
        return is_done

    def draw(self, count: int) -> list[LeasedGroup]:
        """Lease up to `count` external groups without waiting; none if the node has none or is
        down.

        A group whose question is held out for evaluation is skipped, as by shoal's trainer. The
        leases last until `acknowledge`, `release`, or the end of this connection.

        Raises:
            SwarmError: this program may not sample here.
        """
        if self._why_no_draw:
            raise SwarmError(self._why_no_draw)
        leased = self._link.sample(count)
        if not leased:
            self._check_place()
            return []
        usable: list[LeasedGroup] = []
        skipped: list[GroupId] = []
        waiting: list[GroupId] = []
        tasks = [item.group.task for item in leased]
        for item, question in zip(leased, self._tasks.for_training(tasks), strict=True):
            if isinstance(question, Question):
                usable.append(LeasedGroup(question, item))
            else:
                target = waiting if question is Split.UNAVAILABLE else skipped
                target.append(item.group_id)
        self._link.end_leases(consumed=skipped, released=waiting)
        self._link.send_report()
        return usable

    def verify(self, groups: Sequence[Group | LeasedGroup]) -> list[list[float]]:
        """Return each group's rewards by this machine's own sandboxed verifier.

        They are zeros if an OpenEnv server or judge gave none. The rewards of the other sampled
        groups are reported to the node, which weights their publishers by them.
        """
        verified = self._tasks.verify([(one.question.task, one.answers) for one in groups])
        reports = [
            m.GroupReport(group_id=one.id, publisher=one.publisher, rewards=tuple(earned))
            for one, earned in zip(groups, verified, strict=True)
            if isinstance(one, LeasedGroup) and not isinstance(earned, MissingReward)
        ]
        self._link.report(reports)
        self._link.send_report()
        return list(map(fill_zeros, verified, [len(one.answers) for one in groups]))

    def acknowledge(self, groups: Sequence[LeasedGroup | GroupId]) -> bool:
        """End leases of groups that were trained on: they are never sampled again.

        A group that an earlier run of this program sampled is given by its id.

        Returns whether the node has stored this. Otherwise it is repeated at every connection
        and acknowledgement, and until then `unconfirmed` holds the groups.
        """
        ids = [one.id if isinstance(one, LeasedGroup) else one for one in groups]
        self._link.hold_until_checkpoint(ids)
        self._link.consume_held()
        return not self.unconfirmed

    @property
    def unconfirmed(self) -> tuple[GroupId, ...]:
        """Acknowledged groups that the node has not confirmed.

        Store them with your checkpoint, and acknowledge them again after a restart.
        """
        return self._link.consumed_for_checkpoint()

    def release(self, groups: Sequence[LeasedGroup]) -> None:
        """End leases of groups that were not trained on: they may be sampled again."""
        self._link.end_leases(released=[one.id for one in groups])
        self._link.send_report()

    def close(self) -> None:
        """Send queued groups, end all leases, and stop the node if `shoal.connect` started it."""
        try:
            self._link.flush()
            self._link.drain()
        finally:
            self._client.close()
            self._worker.close()
            if self._node is not None:
                self._node.stop()

    def _check_place(self) -> None:
        """Raise SwarmError if another program has become the node's trainer."""
        try:
            self._client.call(m.Report(), m.Ok)
        except NodeRefused as refused:
            raise SwarmError(f"{refused}; connect again to take it back") from None
        except NodeUnavailable:
            return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
