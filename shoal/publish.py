"""`shoal publish`: share a file of completions from any source."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from shoal.nearby import running_node
from shoal.node_link import OpenNode, check_author, open_link
from shoal_base.files import read_at_most
from shoal_base.lines import readable_json, say, say_json
from shoal_settings.exits import EXIT_OK, fail
from shoal_settings.parser import Parser, data_dir_flag, whole
from shoal_tasks.hand_made import RowError, read_groups
from shoal_tasks.worker.sync import SyncTaskWorker

DESCRIPTION = """\
Share a file of completions through the node that runs in --data-dir: it signs them, and every peer
validates, verifies and may train on them as on any other group. Sample questions, have
any program answer them, publish:

  shoal publish --draw 20 > questions.jsonl
  … add "completions": ["…", "…"] to every line …
  shoal publish answers.jsonl

Nothing is published unless every line is valid. Publishing a file again changes nothing.
Exit codes: 0 ok, 1 failed, 2 usage, 3 no node there."""


_MAX_FILE_BYTES = 256 << 20
"""Size limit of a file: more than a swarm accepts from one node in days. A device has no end."""


def main(argv: Sequence[str]) -> int:
    """Run `shoal publish`; return the exit code."""
    arguments = _parser().parse_args(argv)
    author = check_author("publish", arguments.author)
    if (arguments.file is None) == (arguments.draw is None):
        raise fail("publish", "give a FILE to publish, or --draw N to get questions")
    link = open_link("publish", running_node(arguments.data_dir))
    with SyncTaskWorker(link.families) as worker:
        if arguments.draw is not None:
            return _draw(worker, arguments.draw)
        return _publish(link, worker, arguments.file, author, as_json=arguments.json)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="shoal publish", description=DESCRIPTION)
    parser.add_argument("file", nargs="?", metavar="FILE", help="JSON lines; - is standard input")
    parser.add_argument(
        "--draw",
        type=whole(1, 100_000),
        metavar="N",
        help="print N fresh questions of the swarm's families",
    )
    data_dir_flag(parser, "the node's folder (.shoal/node, or the one started last)")
    parser.add_argument(
        "--author", default="script", metavar="NAME", help="author name sent to peers (script)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _draw(worker: SyncTaskWorker, count: int) -> int:
    for task, question in worker.draw(random.SystemRandom(), count):
        row = {"family": task.family, "seed": task.seed, "index": task.index, "question": question}
        say(readable_json(row))
    return EXIT_OK


def _text(name: str) -> str:
    """Return a file's text, or that of standard input for `-`. Raises UsageExit."""
    try:
        if name == "-":
            return sys.stdin.read()
        return read_at_most(Path(name), _MAX_FILE_BYTES).decode("utf-8")
    except OSError as error:
        reason = str(error.strerror)
    except UnicodeDecodeError:
        reason = "it is not UTF-8"
    except ValueError:
        reason = f"it has more than {_MAX_FILE_BYTES >> 20} MiB; publish it in parts"
    raise fail("publish", f"{name} cannot be read: {reason}")


def _publish(
    link: OpenNode, worker: SyncTaskWorker, name: str, author: str, *, as_json: bool
) -> int:
    try:
        groups = read_groups(
            _text(name).splitlines(),
            families=link.families,
            rules=link.manifest.rules,
            worker=worker,
        )
    except RowError as error:
        raise fail("publish", f"{name}: {error}; nothing was published") from None
    if not groups:
        raise fail("publish", f"{name} has no rows")
    new = link.publish(groups, author=author)
    if as_json:
        say_json({"schema_version": 1, "groups": len(groups), "new": new})
    else:
        known = f", {len(groups) - new} were published before" if new < len(groups) else ""
        say(f"published {new} groups as {link.client.peer_id}{known}")
    return EXIT_OK
