"""`shoal answer`: a person answers questions in place of a model."""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass

from shoal.answer_games import play_games
from shoal.nearby import running_node
from shoal.node_link import OpenNode, check_author, open_link
from shoal_base.lines import say_json
from shoal_base.terminal import Terminal, styled
from shoal_base.visible import visible_name
from shoal_settings.exits import EXIT_OK, fail
from shoal_settings.parser import Parser, data_dir_flag, did_you_mean, whole
from shoal_tasks.hand_made import completion_of
from shoal_tasks.spec import FamilySpec
from shoal_tasks.turns import split_messages
from shoal_tasks.types import GroupRequest, TaskCoordinates
from shoal_tasks.wire_tasks import make_task
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.rules import check_completion
from shoal_wire.types import Completion, RolloutGroup

DESCRIPTION = """\
Answer questions of the swarm yourself: type one answer per line, then an empty line.
Give as many as the program asks for, right and wrong ones: models learn from the
difference. The node that runs in --data-dir signs and shares them like any rollout, and your own
verifier shows their rewards. An empty first line skips the question, Ctrl-D ends.
A game is played turn by turn, several times from the same start. An empty line leaves a game
unfinished.

  shoal answer --count 3   three questions of any family

Exit codes: 0 ok, 1 failed, 2 usage, 3 no node there."""


@dataclass(frozen=True, slots=True)
class _Prompted:
    coordinates: TaskCoordinates
    question: str
    spec: FamilySpec


def main(argv: Sequence[str]) -> int:
    """Run `shoal answer`; return the exit code."""
    arguments = _parser().parse_args(argv)
    console = Terminal(stderr=arguments.json)
    author = check_author("answer", arguments.author)
    link = open_link("answer", running_node(arguments.data_dir))
    families = _chosen(link, arguments.family)
    with SyncTaskWorker(families) as worker:
        shared = _ask_all(link, worker, families, arguments, console, author)
    if not arguments.json:
        console.print(f"shared answers to {shared} questions as {link.client.peer_id}")
    return EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="shoal answer", description=DESCRIPTION)
    data_dir_flag(parser, "the node's folder (.shoal/node, or the one started last)")
    parser.add_argument("--family", metavar="NAME", help="only questions of this family")
    parser.add_argument(
        "--count",
        type=whole(0),
        default=0,
        metavar="N",
        help="stop after N questions (0: no limit)",
    )
    parser.add_argument(
        "--author", default="a person", metavar="NAME", help="author name sent to peers (a person)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object for each question shared"
    )
    return parser


def _chosen(link: OpenNode, name: str | None) -> tuple[FamilySpec, ...]:
    if name is None:
        return link.families
    found = tuple(spec for spec in link.families if spec.name == name)
    if not found:
        known = ", ".join(visible_name(spec.name) for spec in link.families)
        meant = did_you_mean(name, [spec.name for spec in link.families])
        raise fail("answer", f"family {name!r} is not this swarm's{meant}; it has {known}")
    return found


def _ask_all(
    link: OpenNode,
    worker: SyncTaskWorker,
    families: Sequence[FamilySpec],
    arguments: argparse.Namespace,
    console: Terminal,
    author: str,
) -> int:
    """Ask questions until the input ends; return the number answered and shared."""
    specs = {spec.name: spec for spec in families}
    shared = prompted = 0
    try:
        while not arguments.count or prompted < arguments.count:
            [(task, question)] = worker.draw(random.SystemRandom(), 1)
            one = _Prompted(task, question, specs[task.family])
            if one.spec.is_environment:
                completions = play_games(link, worker, one.spec, one.coordinates, question, console)
            else:
                completions = _answers(link, one, console)
            prompted += 1
            if completions:
                link.publish([_group(one, completions)], author=author)
                shared += 1
                _show_rewards(worker, one, completions, console, as_json=arguments.json)
    except (EOFError, KeyboardInterrupt):
        console.print()
    return shared


def _answers(link: OpenNode, prompted: _Prompted, console: Terminal) -> list[Completion]:
    rules = link.manifest.rules
    console.print()
    console.print(visible_name(prompted.spec.name), style="bold")
    console.print_lines(prompted.question.strip())
    if prompted.spec.is_tagged:
        console.print("the answer stands between <answer> and </answer>", style="dim")
    found: list[Completion] = []
    while len(found) < rules.max_completions:
        text = console.input(styled((f"answer {len(found) + 1}:", "dim"), " "))
        if not text.strip():
            if not found:
                return []
            if len(found) >= rules.min_completions:
                break
            console.print(f"{rules.min_completions} are needed; a wrong one will do", style="dim")
            continue
        completion = completion_of(text)
        fault = check_completion(completion, rules)
        if fault is None:
            found.append(completion)
        else:
            console.print(f"peers would refuse that: {fault}")
    return found


def _group(prompted: _Prompted, completions: Sequence[Completion]) -> RolloutGroup:
    return RolloutGroup(
        task=make_task(prompted.coordinates, prompted.question, prompted.spec),
        completions=tuple(completions),
    )


def _show_rewards(
    worker: SyncTaskWorker,
    prompted: _Prompted,
    completions: Sequence[Completion],
    console: Terminal,
    *,
    as_json: bool,
) -> None:
    answers = tuple((one.text, one.finish_reason) for one in completions)
    (results,) = worker.score_groups([GroupRequest(task=prompted.coordinates, answers=answers)])
    rewards = [result.reward for result in results]
    for completion, reward in zip(completions, rewards, strict=True):
        text = completion.text
        if prompted.spec.is_environment:
            text = " › ".join(split_messages(text))
        console.print(f"{reward:5.2f}  {text}", soft_wrap=True)
    if min(rewards) == max(rewards):
        console.print("all have the same reward: shared, but without training signal", style="dim")
    if as_json:
        texts = [completion.text for completion in completions]
        row = {"family": prompted.spec.name, "question": prompted.question, "completions": texts}
        say_json({"schema_version": 1, **row, "rewards": rewards})
