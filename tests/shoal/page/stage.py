"""A node with something to show, its page, and a browser that looks at it."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anyio.from_thread import start_blocking_portal

from shoal_p2p.peers.outside import wall_ms
from shoal_p2p.rollouts.ledger_file import LEDGER
from shoal_p2p.rollouts.training_stats import TrainingStats
from shoal_p2p.state_file import STATE_FILE, write_state
from shoal_tasks.families import TRAIN_SEED_MIN, coordinates
from shoal_tasks.spec import FamilySpec
from shoal_tasks.task_file import load_task_file
from shoal_tasks.turns import join_messages
from shoal_tasks.wire_tasks import make_task
from shoal_wire.types import PeerId, PublishedGroup
from tests.shoal.page.browser import PageProcess, open_browser, page_of
from tests.support import factories as make
from tests.support.hostile_text import ALL_THAT_UTF8_HOLDS
from tests.support.nodes import open_test_host
from tests.support.running_node import RunningNode
from tests.tasks.games import game_file

PATIENCE_MS = 30_000
LONG_LINE = "x" * (32 * 1024)
MARKUP = (
    "<script>window.taken = 1</script>",
    "<img src=x onerror='window.taken = 1'>",
    "<svg onload='window.taken = 1'>",
    "</p><style>*{display:none}</style>",
    "javascript:window.taken=1",
    "&lt;b&gt;&#x202e;",
    "${window.taken = 1}",
    "\u2028<iframe srcdoc='<script>parent.taken=1</script>'>",
)
HOSTILE = (
    *(f"before {one} after" for one in MARKUP),
    ALL_THAT_UTF8_HOLDS.replace("\0", ""),
    LONG_LINE,
    "\u202eesrever\n" * 50,
)
METRICS = 400
FIRST_MS = 1_790_000_000_000
HOSTILE_NAME = "\u202e<img src=x onerror='window.taken = 1'>"
ANSWERED = "#right-word:text('fine'), #right[data-state=warn], [data-state=ok]"
SEED = 20261122


@dataclass
class Stage:
    """A node, its page, and a browser."""

    browser: Any
    process: PageProcess
    node: RunningNode
    folder: Path
    group: str
    games: str
    """A group of a family that answers back."""
    life: ExitStack
    """Closed, it ends the node."""

    def open(self, width: int = 1366, scheme: str = "light", place: str = "") -> Any:
        """Open the page in a window of its own."""
        context = self.browser.new_context(
            viewport={"width": width, "height": 768}, color_scheme=scheme, reduced_motion="reduce"
        )
        page = context.new_page()
        page.errors = []  # errors that the browser reported
        page.on(
            "console", lambda one: page.errors.append(one.text) if one.type == "error" else None
        )
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.on("dialog", lambda one: (page.errors.append(one.message), one.dismiss()))
        page.goto(self.process.url + place)
        page.wait_for_selector(ANSWERED)
        return page


def metrics_lines() -> str:
    """A run that learns."""
    dice = random.Random(SEED)
    lines: list[dict[str, Any]] = []
    for number in range(METRICS):
        reward = min(1.0, max(0.0, 0.1 + 0.7 * number / METRICS + dice.uniform(-0.1, 0.1)))
        lines.append(
            {
                "event": "round",
                "round": number,
                "reward_local": reward,
                "reward_external": 0.8 * reward,
                "step_time": 1.5,
            }
        )
        if number % 50 == 0:
            held_out = {"held_out/pass@1": reward, "held_out/chain_sum": reward / 2}
            lines.append({"event": "held_out", "round": number, **held_out})
    return "".join(json.dumps(line) + "\n" for line in lines)


def ledger_text() -> str:
    """Return what an earlier life of the node left."""
    ledger = TrainingStats(PeerId("me"))
    for number in range(1, METRICS):
        ledger.take(number, [], now_ms=FIRST_MS + number * 120_000)
    return ledger.to_json()


def hostile_group(node: RunningNode) -> PublishedGroup:
    """What a stranger says, taken in by the node."""
    author = make.Author(node.node.member.manifest, now_ms=wall_ms())
    policy = replace(make.POLICY, model_name=HOSTILE_NAME)
    signed = author.signed(author.batch([make.group(texts=HOSTILE)], policy=policy))
    node.call(node.node.pool.keep_all, [signed])
    return node.node.recent.after(0, limit=1)[0].group


def games_of(node: RunningNode, spec: FamilySpec) -> PublishedGroup:
    """Games of another, one of them with markup for messages."""
    task = make_task(coordinates(spec, TRAIN_SEED_MIN), "Guess a number from 1 to 6.", spec)
    author = make.Author(node.node.member.manifest, now_ms=wall_ms())
    texts = (join_messages(MARKUP), join_messages(["x", "1"]))
    signed = author.signed(author.batch([make.group(of=task, texts=texts)]))
    node.call(node.node.pool.keep_all, [signed])
    return node.node.recent.after(1, limit=1)[0].group


@contextmanager
def connected_peer_of(node: RunningNode) -> Iterator[str]:
    """Connect a peer without a node to `node`; yield its id."""
    with (
        start_blocking_portal("trio") as portal,
        portal.wrap_async_context_manager(open_test_host()) as host,
    ):
        portal.call(host.dial, node.address)
        yield host.peer_id


def connected_at(node: RunningNode, peer_id: str) -> float:
    """When the node itself noted that a peer is there, on the wall clock."""

    async def age() -> float:
        connections = node.node.member.host.connections()
        return next(one.opened_s for one in connections if one.peer_id == peer_id)

    return time.time() - node.call(age)


@contextmanager
def open_stage(root: Path) -> Iterator[Stage]:
    """Start all three; the node has published nothing, and has rollouts of another peer."""
    folder = root / "node"
    folder.mkdir()
    (folder / "metrics.jsonl").write_text(metrics_lines())
    write_state(folder / STATE_FILE, LEDGER, ledger_text().encode())
    with ExitStack() as stack:
        browser = stack.enter_context(open_browser())
        life = stack.enter_context(ExitStack())
        games = game_file(root, max_turns=20)
        node = life.enter_context(RunningNode(folder, tasks=("easy", str(games))))
        group = hostile_group(node)
        played = games_of(node, load_task_file(games))
        process = stack.enter_context(page_of(folder, log=root / "page.txt"))
        ids = group.group_id.hex(), played.group_id.hex()
        yield Stage(browser, process, node, folder, *ids, life)
