"""Adds tasks to a running node and removes them, by a user's orders or by the user's rules.

    add ─▶ fetching ─▶ asking (the lines that describe it) ─ accept ─▶ checking ─▶ accepted ─ remove
              └──────────── refused, with the reason ◀─ decline ─┘

The steps are those of a task at a join (`acceptor`). What is accepted lies in the data directory,
from which the node takes it up without a restart.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from shoal_base.bounded import BoundedDict
from shoal_base.visible import visible_name
from shoal_base.waits import HOUR_S
from shoal_p2p.bundles.acceptor import Accept, Refuse, TaskAcceptor, TaskOffer
from shoal_p2p.bundles.asking import accept_by_rule, describe_offer, refuse_by, sandbox_layers
from shoal_p2p.bundles.client import TaskClient
from shoal_p2p.bundles.offer_book import OfferedFamily
from shoal_p2p.threads import InThread
from shoal_settings.accept_tasks import AcceptRule, parse_accept_rule
from shoal_tasks.bundle import ACCEPTED_FILE, TASKS_FOLDER, accepted_folder, load_accepted
from shoal_tasks.errors import TaskError
from shoal_tasks.spec import FamilySpec
from shoal_tasks.swarm import families_of
from shoal_wire.errors import ManifestError
from shoal_wire.manifest import Manifest
from shoal_wire.types import Digest

if TYPE_CHECKING:
    from trio_typing import TaskStatus

log = logging.getLogger(__name__)

MAX_ADDED: Final = 64
"""Most families that a node adds to those of its swarm: each has topics of its own."""
_MAX_OPEN: Final = 8
"""Orders at work at one time."""
_DIGEST: Final = re.compile(r"[0-9a-f]{32}")
_ASK_S: Final = HOUR_S
_AHEAD_S: Final = 600.0
"""Time after which a task that a rule refused, or that failed, may be tried by a rule again."""


class OrderState(StrEnum):
    """State of an order to add a task."""

    FETCHING = "fetching"
    ASKING = "asking"
    CHECKING = "checking"
    ACCEPTED = "accepted"
    REFUSED = "refused"


class OrderError(Exception):
    """An order that cannot be carried out; one line for the user."""


@dataclass(slots=True, kw_only=True)
class Order:
    """One task to be added."""

    spec: FamilySpec
    state: OrderState = OrderState.FETCHING
    lines: tuple[str, ...] = ()
    """The description of the task for the user who decides."""
    why: str = ""
    """Why it was refused."""
    has_decided: trio.Event = field(default_factory=trio.Event)
    is_accepted: bool = False

    @property
    def is_open(self) -> bool:
        """True while something is to be done for it."""
        return self.state not in (OrderState.ACCEPTED, OrderState.REFUSED)


class TaskOrders:
    """The tasks that a node adds while it runs."""

    def __init__(
        self,
        *,
        make_client: Callable[[], TaskClient],
        manifest: Manifest,
        data_dir: Path,
        in_thread: InThread,
        offered: Callable[[], Iterator[OfferedFamily]],
        here: Callable[[], tuple[FamilySpec, ...]],
        take_up: Callable[[], Awaitable[None]],
        rule: AcceptRule | None = None,
    ) -> None:
        """`here` returns the node's families, and `take_up` uses those in the data directory.

        `rule` accepts tasks of the authors that it names without an order.
        """
        self._make_client = make_client
        self._manifest = manifest
        self._data_dir = data_dir
        self._in_thread = in_thread
        self._offered = offered
        self._here = here
        self._take_up = take_up
        self._rule = rule
        self._tried: BoundedDict[Digest, float] = BoundedDict()
        self.orders: dict[Digest, Order] = {}
        """The latest order of each family, by its digest."""
        self._send, self._receive = trio.open_memory_channel[tuple[Order, Refuse, Accept]](
            _MAX_OPEN
        )

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry out orders until cancelled, each in a task of its own."""
        async with trio.open_nursery() as nursery:
            task_status.started()
            async for order, refuse, accept in self._receive:
                nursery.start_soon(self._carry_out, order, refuse, accept)

    # Orders of the user

    async def add(self, name: str, rule_text: str = "") -> None:
        """Begin to add a task on offer, by its name or the beginning of its digest.

        A task that lies in the data directory already, by its whole digest, is taken up at once.
        With `rule_text`, a value of `accept_tasks`, the rule decides, otherwise `decide`.

        Raises:
            OrderError: it cannot be added; the text says why.
        """
        try:
            rule = parse_accept_rule(rule_text) if rule_text else None
        except ValueError as error:
            raise OrderError(f"--accept-tasks {error}") from None
        kept = self._data_dir / TASKS_FOLDER / name / ACCEPTED_FILE
        is_kept = await self._in_thread(kept.is_file) if _DIGEST.fullmatch(name) else False
        if is_kept:
            await self._add_kept(kept)
            return
        spec = self._find(name)
        known = self.orders.get(spec.digest)
        if known is not None and known.is_open:
            return
        order = Order(spec=spec)
        refuse = partial(refuse_by, rule) if rule is not None else _refuse_nothing
        self._begin(order, refuse, partial(self._ask, order) if rule is None else accept_by_rule)

    async def _add_kept(self, path: Path) -> None:
        """Take up a task whose files a command of the user has put into the data directory."""
        try:
            spec = await self._in_thread(load_accepted, path)
            if (why := self._clash(spec)) == "":
                await self._take_up()
        except (ManifestError, TaskError) as error:
            why = str(error)
        if why:
            if not any(one.digest.hex() == path.parent.name for one in self._here()):
                await self._in_thread(partial(shutil.rmtree, path.parent, ignore_errors=True))
            raise OrderError(why)

    def _find(self, name: str) -> FamilySpec:
        offered = list(self._offered())
        found = [one.spec for one in offered if one.spec.name == name] or [
            one.spec for one in offered if len(name) >= 6 and one.spec.digest.hex().startswith(name)
        ]
        if not found:
            raise OrderError(f"no task {name!r} is on offer: shoal tasks --swarm lists them")
        if len(found) > 1:
            digests = ", ".join(spec.digest.hex()[:12] for spec in found)
            raise OrderError(f"{len(found)} tasks named {name!r} are on offer: name {digests}")
        (spec,) = found
        if (why := self._clash(spec)) != "":
            raise OrderError(why)
        return spec

    def _clash(self, spec: FamilySpec) -> str:
        """Return why a task cannot be added to those of this node; empty if it can."""
        here = self._here()
        name = visible_name(spec.name)
        if any(one.digest == spec.digest for one in here):
            return f"this node trains on {name!r} already"
        if any(one.name == spec.name for one in here):
            return f"this node has another task named {name!r}: remove it first"
        if len(here) >= MAX_ADDED + len(self._manifest.families):
            return f"this node has added {MAX_ADDED} tasks, and no more fit: remove one first"
        return ""

    def _begin(self, order: Order, refuse: Refuse, accept: Accept) -> None:
        if sum(one.is_open for one in self.orders.values()) >= _MAX_OPEN:
            raise OrderError(f"{_MAX_OPEN} tasks are being added: decide about one of them first")
        done = [digest for digest, one in self.orders.items() if not one.is_open]
        for digest in done[: max(0, len(self.orders) - MAX_ADDED)]:
            del self.orders[digest]
        self.orders.pop(order.spec.digest, None)
        self.orders[order.spec.digest] = order
        self._send.send_nowait((order, refuse, accept))

    def decide(self, digest: Digest, *, is_accepted: bool) -> None:
        """Accept or decline a task whose order asks. Raises OrderError: none does."""
        order = self.orders.get(digest)
        if order is None or order.state is not OrderState.ASKING:
            raise OrderError("that task is not waiting for a decision")
        order.is_accepted = is_accepted
        order.has_decided.set()

    async def remove(self, name: str) -> None:
        """Stop training on a task that was accepted, and delete its files.

        Raises:
            OrderError: there is no such task, or it is not one that was accepted.
        """
        spec = next((one for one in self._here() if one.name == name), None)
        if spec is None:
            raise OrderError(f"this node has no task {name!r}")
        folder = accepted_folder(self._data_dir, spec)
        if not await self._in_thread((folder / ACCEPTED_FILE).is_file):
            raise OrderError(
                f"{visible_name(name)!r} was not accepted from a peer: start the node without it"
            )
        await self._in_thread(partial(shutil.rmtree, folder))
        self.orders.pop(spec.digest, None)
        try:
            await self._take_up()
        except (ManifestError, TaskError) as error:
            raise OrderError(f"its files are deleted, but the node keeps it: {error}") from None
        log.info("task %s is removed", visible_name(name))

    # Rules

    def on_offered(self, family: OfferedFamily) -> None:
        """Add a family by the user's rule, if it names one of its authors."""
        rule, spec = self._rule, family.spec
        if rule is None or not rule.authors.intersection(family.signers):
            return
        tried = self._tried.get(spec.digest)
        if tried is not None and trio.current_time() - tried < _AHEAD_S:
            return
        self._tried.put(spec.digest, trio.current_time())
        if self._clash(spec) == "":
            try:
                self._begin(Order(spec=spec), partial(refuse_by, rule), accept_by_rule)
            except OrderError as error:
                log.info("task %s is not added: %s", visible_name(spec.name), error)

    # The work

    async def _carry_out(self, order: Order, refuse: Refuse, accept: Accept) -> None:
        try:
            order.why = await self._added(order, refuse, accept)
        except OSError as error:
            order.why = f"its files cannot be written: {error.strerror}"
        order.state = OrderState.REFUSED if order.why else OrderState.ACCEPTED
        if order.why:
            log.warning("task %s is not added: %s", visible_name(order.spec.name), order.why)

    async def _added(self, order: Order, refuse: Refuse, accept: Accept) -> str:
        """Return why a task was not added; empty if the node trains on it."""

        async def decide(offer: TaskOffer) -> bool:
            accepted = await accept(offer)
            order.state = OrderState.CHECKING
            return accepted

        acceptor = TaskAcceptor(
            client=self._make_client(),
            data_dir=self._data_dir,
            refuse=refuse,
            accept=decide,
            in_thread=self._in_thread,
        )
        (family,) = families_of([replace(order.spec, weight=1.0)])
        why = await acceptor.bring_one(family, order.spec, self._manifest.digest)
        if why:
            return why
        # Another one of that name may have come meanwhile.
        if (why := self._clash(order.spec)) == "":
            try:
                await self._take_up()
            except (ManifestError, TaskError) as error:
                why = str(error)
        if why:
            folder = accepted_folder(self._data_dir, order.spec)
            await self._in_thread(partial(shutil.rmtree, folder, ignore_errors=True))
        return why

    async def _ask(self, order: Order, offer: TaskOffer) -> bool:
        layers = await self._in_thread(sandbox_layers) if offer.has_code else ""
        order.lines = tuple(describe_offer(offer, layers))
        order.state = OrderState.ASKING
        with trio.move_on_after(_ASK_S):
            await order.has_decided.wait()
        return order.is_accepted


def _refuse_nothing(_spec: FamilySpec, _bundle: object) -> str:
    return ""
