"""`shoal tasks add`: adds a task to a running node, one on offer or one of your own."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from shoal.tasks.on_offer import add_folder, with_node
from shoal.view.node import RunningNode
from shoal_base.extras import missing_for_tasks
from shoal_base.lines import say
from shoal_base.waits import POLL_S
from shoal_ipc import messages as m
from shoal_ipc.answers.form import read
from shoal_ipc.answers.tasks import OfferedTask, Tasks
from shoal_settings.accept_tasks import ASK, parse_accept_rule
from shoal_settings.exits import EXIT_FAILED, fail
from shoal_settings.node_settings import TASK_FILE_SUFFIX
from shoal_settings.parser import Parser
from shoal_tasks.bundle import keep_own
from shoal_tasks.errors import FamilyError
from shoal_tasks.lint.start import quick_report
from shoal_tasks.swarm import families_of
from shoal_tasks.task_file import examples_in, load_task_file
from shoal_wire.manifest import Manifest, decode_manifest
from shoal_wire.types import PeerId

DESCRIPTION = """\
Add a task to a running node, which then trains on it without a restart. A task on offer is fetched
and shown, and you decide; nothing of it runs before. Of your own task file the node keeps a copy,
and with share = true other members can add it too.

  shoal tasks add words                              a task that a member offers
  shoal tasks add words --accept-tasks 20MB,words    in a script: a rule decides
  shoal tasks add mine.toml                          your own task

Exit codes: 0 it is added, 1 it is not, 2 usage, 3 no node there."""

_COMMAND = "tasks add"


def main(argv: Sequence[str]) -> int:
    """Run `shoal tasks add`; return the exit code."""
    parser = Parser(prog="shoal tasks add", description=DESCRIPTION)
    parser.add_argument(
        "task",
        metavar="TASK",
        help="its name or digest in `shoal tasks --swarm`, or a task file: FILE.toml",
    )
    parser.add_argument(
        "--accept-tasks",
        metavar="RULE",
        help="decide by a rule, as --accept-tasks of a node does, such as 20MB,words",
    )
    add_folder(parser)
    arguments = parser.parse_args(argv)
    if (missing := missing_for_tasks()) is not None:
        raise fail(_COMMAND, missing)
    task, rule = arguments.task, _rule(arguments.accept_tasks)

    def run(node: RunningNode) -> None:
        if task.endswith(TASK_FILE_SUFFIX):
            _add_own(node, Path(task))
        else:
            if not rule and not sys.stdin.isatty():
                why = "there is no terminal to ask at: --accept-tasks 20MB decides by a rule"
                raise fail(_COMMAND, why)
            _add_offered(node, task, rule)

    return with_node(_COMMAND, arguments.data_dir, run)


def _rule(value: str | None) -> str:
    """Return a rule that decides; empty to ask. Raises UsageExit: it is none."""
    try:
        return "" if value is None or parse_accept_rule(value) is None else value
    except ValueError as error:
        raise fail(_COMMAND, f"--accept-tasks {error}, not {value!r}; {ASK} asks you") from None


def _add_own(node: RunningNode, path: Path) -> None:
    try:
        spec = load_task_file(path)
        report = quick_report(spec, examples_in(path))
        if report.is_refused:
            raise FamilyError(f"{path} is not sound: {report.sentence}")
        folder = keep_own(
            node.data_dir,
            spec,
            families_of([spec])[0],
            examples_in(path),
            swarm=_manifest(node).digest,
            me=PeerId(node.ask("status")["peer_id"]),
        )
    except FamilyError as error:
        raise fail(_COMMAND, str(error)) from None
    except OSError as error:
        raise fail(_COMMAND, f"{path} cannot be copied: {error.strerror}", EXIT_FAILED) from None
    node.order_task(m.TaskAction.ADD, spec.digest.hex())
    say(f"task {spec.name} is added; the node has copied its files to {folder}")
    if not spec.share:
        say(f"other members cannot add it: share = true in {path} offers it to them")


def _manifest(node: RunningNode) -> Manifest:
    return decode_manifest(node.manifest())


def _add_offered(node: RunningNode, name: str, rule: str) -> None:
    node.order_task(m.TaskAction.ADD, name, rule)
    has_logged = False
    while True:
        one = _progress(node, name)
        match one.state:
            case "asking":
                _decide(node, one)
            case "accepted":
                return say(f"task {one.name} is added: this node trains on it now")
            case "refused" | "offered":
                why = one.why or "the node has forgotten this order"
                raise fail(_COMMAND, f"task {one.name} is not added: {why}", EXIT_FAILED)
            case "fetching" if not has_logged:
                has_logged = True
                say(f"fetching {one.name}")
            case _:
                pass
        time.sleep(POLL_S)


def _progress(node: RunningNode, name: str) -> OfferedTask:
    """Return the task that was ordered by this name or digest."""
    tasks = read(Tasks, node.ask("tasks")).tasks
    of_name = [one for one in tasks if one.name == name and one.state != "offered"]
    found = of_name or [one for one in tasks if one.digest.startswith(name)]
    return found[0] if found else OfferedTask(name=name)


def _decide(node: RunningNode, one: OfferedTask) -> None:
    for line in one.description.splitlines():
        say(line)
    say("accept this task? [y/N]")
    is_accepted = sys.stdin.readline().strip().lower() in ("y", "yes")
    action = m.TaskAction.ACCEPT if is_accepted else m.TaskAction.DECLINE
    node.order_task(action, one.digest)
    while _progress(node, one.digest).state == "asking":
        time.sleep(POLL_S)
