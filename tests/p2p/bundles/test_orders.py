"""Tasks added to a running node: by an order, by a rule, refused, and removed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from shoal_lab.simulation.parts import at_once
from shoal_p2p.bundles import orders
from shoal_p2p.bundles.client import TaskClient
from shoal_p2p.bundles.offer_book import OfferedFamily
from shoal_p2p.bundles.orders import MAX_ADDED, OrderError, OrderState, TaskOrders
from shoal_settings.accept_tasks import parse_accept_rule
from shoal_tasks.bundle import accepted_folder, accepted_task_files, keep_own
from shoal_tasks.families import EASY
from shoal_tasks.lint.attempts import Examples
from shoal_tasks.spec import FamilySpec
from shoal_tasks.swarm import families_of, spec_of, specs_of
from shoal_wire.errors import ManifestError
from shoal_wire.manifest import make_manifest
from shoal_wire.types import PeerId
from tests.p2p.bundles.cases import AUTHOR, TransferFixture, author_spec

pytestmark = pytest.mark.virtual_time

MANIFEST = make_manifest("orders", families_of(EASY))
STRANGER = PeerId("12D3KooWQK1wnefoLrcVHbbnf5tLzbopUd3K3bFAoJpA7YJgL5pV")


class Running:
    """A node of a running swarm in which an author offers a task."""

    def __init__(
        self, fixture: TransferFixture, folder: Path, nursery: trio.Nursery, *, rule: str = "ask"
    ) -> None:
        self.fixture, self.folder = fixture, folder
        (family,) = families_of([fixture.spec])
        self.offered = [OfferedFamily(spec=spec_of(family), signers=(STRANGER,))]
        self.families: tuple[FamilySpec, ...] = EASY
        self.fault: Exception | None = None
        self.num_taken_up = 0
        self.orders = TaskOrders(
            make_client=lambda: TaskClient(
                host=fixture.here, report=fixture._note, in_thread=at_once, wait_s=2.0
            ),
            manifest=MANIFEST,
            data_dir=folder,
            in_thread=at_once,
            offered=self._offered,
            here=lambda: self.families,
            take_up=self._take_up,
            rule=parse_accept_rule(rule),
        )

    def _offered(self) -> Iterator[OfferedFamily]:
        yield from self.offered

    async def _take_up(self) -> None:
        await trio.lowlevel.checkpoint()
        if self.fault is not None:
            raise self.fault
        self.num_taken_up += 1
        self.families = specs_of(MANIFEST, accepted_task_files(self.folder))

    @property
    def added(self) -> list[str]:
        return [spec.name for spec in self.families if spec not in EASY]

    @property
    def order(self) -> orders.Order:
        (order,) = self.orders.orders.values()
        return order

    async def until(self, *states: OrderState) -> orders.Order:
        with trio.fail_after(500.0):
            while self.order.state not in states:  # noqa: ASYNC110
                await trio.sleep(0.1)
        return self.order

    def has_files(self) -> bool:
        return accepted_folder(self.folder, self.fixture.spec).exists()


@pytest.fixture
async def running(tmp_path: Path, nursery: trio.Nursery) -> Running:
    fixture = TransferFixture(spec=author_spec(tmp_path / "a", title="Small sums"))
    node = Running(fixture, tmp_path / "j", nursery)
    await nursery.start(node.orders.run)
    return node


async def test_a_task_is_shown_and_taken_up_once_it_is_accepted(running: Running) -> None:
    await running.orders.add("sums")
    order = await running.until(OrderState.ASKING)
    text = "\n".join(order.lines)
    assert "task sums: Small sums" in text and f"from     {AUTHOR}" in text
    assert "question 0 + 1?." in text and not running.num_taken_up
    assert not accepted_task_files(running.folder)
    running.orders.decide(running.fixture.spec.digest, is_accepted=True)
    await running.until(OrderState.ACCEPTED)
    assert running.added == ["sums"]
    (path,) = accepted_task_files(running.folder)
    content = json.loads(await trio.Path(path).read_text())
    assert (content["swarm"], content["family"]["weight"]) == (MANIFEST.digest.hex(), 1.0)
    with pytest.raises(OrderError, match="trains on 'sums' already"):
        await running.orders.add("sums")


async def test_a_declined_task_leaves_nothing(running: Running) -> None:
    await running.orders.add("sums")
    await running.until(OrderState.ASKING)
    running.orders.decide(running.fixture.spec.digest, is_accepted=False)
    order = await running.until(OrderState.REFUSED)
    assert (order.why, running.added, running.has_files()) == ("you declined it", [], False)
    with pytest.raises(OrderError, match="not waiting for a decision"):
        running.orders.decide(running.fixture.spec.digest, is_accepted=True)
    await running.orders.add("sums")
    await running.until(OrderState.ASKING)


async def test_a_decision_that_never_comes_declines(running: Running) -> None:
    await running.orders.add(running.fixture.spec.digest.hex()[:12])
    await running.until(OrderState.ASKING)
    with trio.fail_after(4000.0):
        await trio.sleep(3700.0)
    assert running.order.state is OrderState.REFUSED and not running.has_files()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("words", "no task 'words' is on offer"),
        ("../../etc", "no task '../../etc' is on offer"),
        (EASY[0].name, "is on offer"),
        ("", "no task '' is on offer"),
    ],
)
async def test_what_is_not_on_offer_cannot_be_added(running: Running, name: str, why: str) -> None:
    with pytest.raises(OrderError, match=why):
        await running.orders.add(name)


async def test_two_tasks_of_one_name_differ_by_their_digests(running: Running) -> None:
    other = replace(running.fixture.spec, config={**running.fixture.spec.config, "title": "Others"})
    running.offered.append(OfferedFamily(spec=other, signers=(STRANGER,)))
    with pytest.raises(OrderError, match=f"2 tasks named 'sums'.*{other.digest.hex()[:12]}"):
        await running.orders.add("sums")
    await running.orders.add(running.fixture.spec.digest.hex()[:12])
    running.families = (*EASY, other)
    order = await running.until(OrderState.ASKING)
    running.orders.decide(order.spec.digest, is_accepted=True)
    await running.until(OrderState.REFUSED)
    assert "another task named 'sums'" in order.why and not running.has_files()


async def test_a_node_adds_a_bounded_number_of_tasks(running: Running) -> None:
    spec = running.fixture.spec
    many = [replace(spec, name=f"t{n}", config={**spec.config, "rows": n + 90}) for n in range(70)]
    running.families = (*EASY, *many[:MAX_ADDED])
    with pytest.raises(OrderError, match="added 64 tasks"):
        await running.orders.add("sums")
    running.families = EASY
    running.fixture.here.answers.clear()
    running.offered += [OfferedFamily(spec=one, signers=(STRANGER,)) for one in many]
    for one in many[:8]:
        await running.orders.add(one.name)
    with pytest.raises(OrderError, match="8 tasks are being added"):
        await running.orders.add("t8")


async def test_an_author_that_is_gone_leaves_a_reason(running: Running) -> None:
    running.fixture.here.answers.clear()
    await running.orders.add("sums")
    order = await running.until(OrderState.REFUSED)
    assert "no connected peer shares its files" in order.why


async def test_a_task_that_the_node_cannot_take_up_is_deleted(running: Running) -> None:
    running.fault = ManifestError("the worker does not start")
    await running.orders.add("sums", "1MB")
    order = await running.until(OrderState.REFUSED)
    assert (order.why, running.has_files()) == ("the worker does not start", False)


async def test_a_rule_decides_in_a_script(running: Running) -> None:
    await running.orders.add("sums", "100")
    order = await running.until(OrderState.REFUSED)
    assert "--accept-tasks allows 100" in order.why
    with pytest.raises(OrderError, match="must be ask, none, or a size"):
        await running.orders.add("sums", "many")
    await running.orders.add("sums", "1MB")
    await running.until(OrderState.ACCEPTED)
    assert running.added == ["sums"]


@pytest.mark.parametrize(
    ("rule", "code", "why"),
    [
        (f"1MB,from:{STRANGER}", False, ""),
        ("1MB", False, None),
        (f"1MB,from:{AUTHOR}", False, ValueError),
        (f"100,from:{STRANGER}", False, "allows 100"),
        (f"1MB,from:{STRANGER}", True, "it holds code"),
    ],
)
async def test_a_rule_accepts_what_its_authors_offer(
    tmp_path: Path, nursery: trio.Nursery, rule: str, code: bool, why: Any
) -> None:
    fields: dict[str, Any] = {"reward": "reward.py"} if code else {}
    fixture = TransferFixture(spec=author_spec(tmp_path / "a", **fields))
    if why is ValueError:
        with pytest.raises(ValueError, match="not the id of a peer"):
            parse_accept_rule(rule)
        return
    node = Running(fixture, tmp_path / "j", nursery, rule=rule)
    await nursery.start(node.orders.run)
    node.orders.on_offered(node.offered[0])
    await trio.sleep(60.0)
    if why is None:
        assert not node.orders.orders
    elif why:
        assert why in node.order.why
        requests = len(fixture.here.requests)
        node.orders.on_offered(node.offered[0])
        await trio.sleep(60.0)
        assert len(fixture.here.requests) == requests, "it is not fetched again at once"
    else:
        assert node.added == ["sums"]


async def test_a_removed_task_leaves_nothing_and_can_come_back(running: Running) -> None:
    await running.orders.add("sums", "1MB")
    await running.until(OrderState.ACCEPTED)
    await running.orders.remove("sums")
    assert (running.added, running.has_files()) == ([], False)
    await running.orders.add("sums", "1MB")
    await running.until(OrderState.ACCEPTED)
    for name, why in (("words", "has no task"), (EASY[0].name, "was not accepted from a peer")):
        with pytest.raises(OrderError, match=why):
            await running.orders.remove(name)


@pytest.mark.parametrize("share", [True, False])
async def test_an_own_task_is_copied_and_taken_up(
    running: Running, tmp_path: Path, share: bool
) -> None:
    own = author_spec(tmp_path / "own", reward="reward.py", share=share)
    (family,) = families_of([own])
    folder = keep_own(running.folder, own, family, Examples(), swarm=MANIFEST.digest, me=STRANGER)
    await running.orders.add(own.digest.hex())
    assert running.added == ["sums"]
    assert running.families[-1].share is share
    for path in (tmp_path / "own").iterdir():
        path.unlink()
    assert {one.name for one in folder.iterdir()} == {"rows.jsonl", "reward.py", "task.json"}
    specs: Sequence[FamilySpec] = specs_of(MANIFEST, accepted_task_files(running.folder))
    assert specs[-1].digest == own.digest
