"""`shoal debug`: look inside a running node through its socket."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from p2p.data_dir import LAST_STATUS_FILE
from shoal.debug import net as net_command
from shoal.debug import peer_orders as peer_command
from shoal.debug import tables
from shoal_ipc import messages as m
from shoal_ipc.client import SOCKET_NAME, NodeClient, NodeRefused, NodeUnavailable
from shoal_settings.exits import EXIT_FAILED, EXIT_NO_NODE, EXIT_OK, UsageExit, fail
from shoal_settings.loader import SettingsError, load

DESCRIPTION = """\
Look inside a running node or bootstrap peer, through the socket in its data directory.
Works while the trainer is down. Exit codes: 0 ok, 1 failed, 2 usage, 3 no node there."""

VIEWS: dict[str, tuple[str, Callable[[Console, dict[str, Any]], None]]] = {
    "status": ("the node at a glance", tables.status),
    "id": ("peer id, key and addresses", tables.identity),
    "peers": ("connections: address, direction, latency, agent, topics, score", tables.peers),
    "scores": ("what this node holds of every peer, the worst first", peer_command.show_scores),
    **{name: (text, peer_command.show_order) for name, text in peer_command.ORDERS.items()},
    "mesh": ("each topic's mesh, and who else is subscribed", tables.mesh),
    "topics": ("the topics this node is subscribed to", tables.topics),
    "buffer": ("the replay buffer by publisher", tables.buffer),
    "contributions": ("who answers for others: draws against contributions", tables.contributions),
    "fetch": ("how batches came, gaps, and what was given to others", tables.fetch),
    "doctor": ("what is wrong with this node's place in the network", net_command.doctor),
    "ping": ("round trips to one peer", net_command.ping),
    "rollouts": (
        "the latest rollouts: question, completions, verified reward",
        tables.rollouts,
    ),
}
_TIMEOUT_SECONDS = 10.0
_FOLLOW_SECONDS = 0.5
_MAX_HINTS = 16
_HINT_SECONDS = 0.5


def main(argv: Sequence[str]) -> int:
    """Run `shoal debug`; return the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        loaded = load("debug", arguments, os.environ)
    except SettingsError as error:
        return fail("debug", str(error)).code
    settings = loaded.settings
    data_dir = settings.data_dir
    console = Console(highlight=False)
    if getattr(arguments, "last", False):
        return _show_last(console, data_dir, as_json=settings.json_output)
    try:
        client = _connect(data_dir)
        for answer in _answers(client, arguments):
            if settings.json_output:
                print(json.dumps(answer), flush=True)
            else:
                VIEWS[arguments.view][1](console, answer)
            if net_command.failed(arguments.view, answer):
                return EXIT_FAILED
    except UsageExit as end:
        return end.code
    except NodeRefused as refused:
        return fail("debug", str(refused), EXIT_FAILED).code
    except NodeUnavailable as error:
        return fail("debug", str(error), EXIT_FAILED).code
    except (KeyboardInterrupt, BrokenPipeError):
        return EXIT_OK
    return EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="shoal debug",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    views = parser.add_subparsers(dest="view", required=True, metavar="VIEW")
    for name, (text, _) in VIEWS.items():
        view = views.add_parser(name, help=text, description=text)
        view.add_argument(
            "--data-dir", dest="data_dir", metavar="DIR", help="the node's folder (.shoal/node)"
        )
        view.add_argument(
            "--json",
            dest="json_output",
            action="store_true",
            default=None,
            help="one JSON object, with schema_version",
        )
        view.add_argument("--config", metavar="FILE", help="TOML file of settings")
        peer_command.add_arguments(name, view)
        if name == "status":
            view.add_argument(
                "--last", action="store_true", help="the numbers a node left when it ended"
            )
        if name == "ping":
            view.add_argument("peer", metavar="PEER", help="a peer id, or an address to connect to")
            view.add_argument("--count", type=_positive, default=4, metavar="N", help="pings (4)")
            view.add_argument(
                "--interval", type=_seconds, default=1.0, metavar="S", help="seconds between (1)"
            )
        if name == "rollouts":
            view.add_argument("--follow", action="store_true", help="go on as new ones come")
            view.add_argument(
                "--limit", type=_positive, default=10, metavar="N", help="how many (10)"
            )
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 3600:
        raise ValueError(text)
    return value


def _connect(data_dir: Path) -> NodeClient:
    client = NodeClient(
        data_dir / SOCKET_NAME, role=m.Role.INSPECTOR, timeout_seconds=_TIMEOUT_SECONDS
    )
    if client.ensure():
        return client
    running = _running_nodes(data_dir)
    hint = f"; running: {', '.join(map(str, running))} (--data-dir)" if running else ""
    raise fail("debug", f"no node is running in {data_dir}{hint}", EXIT_NO_NODE)


def _running_nodes(data_dir: Path) -> list[Path]:
    """Return nearby data directories in which somebody answers on the socket."""
    root = data_dir.parent
    found = sorted([*root.glob(f"*/{SOCKET_NAME}"), *root.glob(f"*/*/{SOCKET_NAME}")])
    return [path.parent for path in found[:_MAX_HINTS] if _answers_at(path)]


def _answers_at(path: Path) -> bool:
    client = NodeClient(path, role=m.Role.INSPECTOR, timeout_seconds=_HINT_SECONDS)
    try:
        return client.ensure()
    finally:
        client.close()


def _answers(client: NodeClient, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield one answer, or with --follow one whenever there is something new."""
    if arguments.view == "ping":
        yield net_command.ping_all(
            partial(_ask, client),
            arguments.peer,
            count=arguments.count,
            interval_s=arguments.interval,
            console=None if arguments.json_output else Console(highlight=False),
        )
        return
    if arguments.view in peer_command.ORDERS:
        yield peer_command.order(client, partial(_ask, client), arguments)
        return
    if arguments.view != "rollouts":
        yield _ask(client, arguments.view, {})
        return
    after = 0
    answer = _ask(client, "rollouts", {"limit": arguments.limit})
    yield answer
    while arguments.follow:
        for rollout in answer["rollouts"]:
            after = max(after, rollout["number"])
        time.sleep(_FOLLOW_SECONDS)
        answer = _ask(client, "rollouts", {"after": after, "limit": 200})
        if answer["rollouts"]:
            yield answer


def _ask(client: NodeClient, view: str, options: dict[str, Any]) -> dict[str, Any]:
    reply = client.call(m.Inspect(view=view, options_json=json.dumps(options)), m.InspectReply)
    answer: dict[str, Any] = json.loads(reply.json)
    return answer


def _show_last(console: Console, data_dir: Path, *, as_json: bool) -> int:
    path = data_dir / LAST_STATUS_FILE
    try:
        status = json.loads(path.read_text())
    except (OSError, ValueError):
        return fail("debug", f"no node has left a status in {data_dir}", EXIT_NO_NODE).code
    if as_json:
        print(json.dumps(status))
    else:
        tables.status(console, status)
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
