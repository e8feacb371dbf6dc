"""Real nodes with different tasks: each hears the families that it accepted, and no others."""

from __future__ import annotations

import itertools
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from shoal_bootstrap.peer import BootstrapPeer
from shoal_p2p.events import Source
from shoal_p2p.node import Node
from shoal_tasks.families import coordinates
from shoal_tasks.task_file import load_task_file
from shoal_wire.types import RolloutGroup
from shoal_wire.verdict import Outcome, Reason
from tests.support import factories as make
from tests.support.doubles.worker import fake_question
from tests.support.exchange_nodes import ExchangeNode
from tests.support.intake_bench import IntakeBench
from tests.support.nodes import until
from tests.support.peers import INSTANT, address_of, open_peer
from tests.support.task_files import task_file

long_until = partial(until, patience_s=60.0)
_numbers = itertools.count()


def written(folder: Path, count: int) -> list[str]:
    """Write task files of so many families."""
    return [
        str(
            task_file(
                folder / f"t{n}",
                f"t{n}",
                [{"question": f"{n}+{i}?", "answer": "1"} for i in range(9)],
            )
        )
        for n in range(count)
    ]


def group_of(file: str) -> RolloutGroup:
    spec = load_task_file(Path(file))
    seed = (1 << 20) + next(_numbers)
    return make.group(of=make.task_of(spec, seed, fake_question(coordinates(spec, seed))))


def received_families(node: ExchangeNode) -> set[str]:
    """Return the names of the families in the buffer."""
    return {entry.group.group.task.family for entry in node.buffer.external_groups()}


@pytest.mark.slow
async def test_each_node_hears_what_it_accepted_and_nothing_else(tmp_path: Path) -> None:
    files = written(tmp_path, 3)
    async with AsyncExitStack() as stack:
        open_one = partial(open_peer, parts=INSTANT)
        met = await stack.enter_async_context(
            open_one(BootstrapPeer, tmp_path / "b", tasks=",".join(files))
        )
        nodes = [
            ExchangeNode(
                await stack.enter_async_context(
                    open_one(
                        Node,
                        tmp_path / f"n{number}",
                        bootstrap=(address_of(met),),
                        tasks=",".join(files[one] for one in mine),
                    )
                )
            )
            for number, mine in enumerate([(0, 1), (0, 1), (1, 2), (2,)])
        ]
        for node in nodes:
            await long_until(lambda node=node: len(node.host.connected_peers()) == 4)
        for node, mine in zip(nodes, [(0, 1), (0, 1), (1, 2), (2,)], strict=True):
            for one in mine:
                await node.share(group_of(files[one]))
        expected = [{"t0", "t1"}, {"t0", "t1"}, {"t1", "t2"}, {"t2"}]
        await long_until(lambda: [received_families(node) for node in nodes] == expected)
        # A gap repair or backfill would need a moment more.
        for node in nodes:
            await node.share(group_of(files[1 if node is not nodes[3] else 2]))
        await long_until(lambda: not any(node.outbox.num_unsent for node in nodes))
        for node, families in zip(nodes, expected, strict=True):
            assert received_families(node) == families
            assert not node.gossip.stats().pubsub.get("unknown_topic")
            assert node.counts()["gaps_seen"] == 0


async def test_a_batch_counts_on_its_own_topic_only() -> None:
    bench = IntakeBench()
    author = make.Author(bench.manifest)
    key = bench.manifest.key_of(make.task())
    for number, other in enumerate((key + 1, (1 << 48) - 1)):
        raw = author.envelope(author.batch([make.group(number)]))
        judged = await bench.intake.validate(raw, author.peer_id, author.peer_id, other)
        assert judged.reason is Reason.WRONG_SWARM and judged.outcome is Outcome.REJECT
    raw = author.envelope(author.batch([make.group(9)]))
    judged = await bench.intake.validate(raw, author.peer_id, author.peer_id, key)
    assert judged.outcome is Outcome.ACCEPT


async def test_an_announced_batch_is_of_the_topic_of_its_announcement() -> None:
    bench = IntakeBench()
    author = make.Author(bench.manifest)
    key = bench.manifest.key_of(make.task())
    for announced_on, reason in ((key + 1, Reason.SIGNER_NOT_SENDER), (key, None), (None, None)):
        batch = author.batch([make.group(next(_numbers))])
        judged = await bench.intake.validate_fetched(
            author.envelope(batch),
            publisher=author.peer_id,
            sequence=batch.sequence,
            num_groups=1,
            source=Source.PULL,
            key=announced_on,
        )
        assert (judged.reason if judged.outcome is not Outcome.ACCEPT else None) is reason
