"""Asks the user at the terminal whether to accept a task, or decides by `--accept-tasks`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Final

import trio

from shoal_base.lines import say
from shoal_base.visible import visible, visible_name
from shoal_p2p.bundles.acceptor import Accept, Refuse, TaskOffer, has_code
from shoal_settings.accept_tasks import AcceptRule, parse_accept_rule
from shoal_settings.schema import Settings
from shoal_tasks.errors import TaskError
from shoal_tasks.families import PRESETS
from shoal_tasks.hub_rows import source_of
from shoal_tasks.spec import ABOUT, FamilySpec
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.task_messages import Bundle

_MAX_SHOWN: Final = 300
"""Characters shown of a question, an answer, or a description."""


def build_deciders(settings: Settings) -> tuple[Refuse, Accept]:
    """Return the functions that decide before and after a task is fetched."""
    rule = parse_accept_rule(settings.accept_tasks)
    if rule is not None:
        return partial(refuse_by, rule), accept_by_rule
    if sys.stdin is None or not sys.stdin.isatty() or settings.json_output:
        return _refuse_without_terminal, accept_by_rule
    return _refuse_nothing, _ask


def refuse_by(rule: AcceptRule, spec: FamilySpec, bundle: Bundle | None) -> str:
    """Return why a rule does not allow a task; empty if it does."""
    num_bytes, hub_rows = (bundle.num_bytes, bundle.hub_rows) if bundle is not None else (0, "")
    danger = "it holds code" if has_code(spec) else ""
    if hub_rows and not danger:
        try:
            danger = f"it is the data set {source_of(hub_rows)} of any size"
        except TaskError as error:
            return str(error)
    return rule.refusal(spec.name, num_bytes, danger)


def _refuse_without_terminal(spec: FamilySpec, _bundle: Bundle | None) -> str:
    names = f",{visible_name(spec.name)}" if has_code(spec) else ""
    return (
        "its files are not here, and there is no terminal to ask at: --accept-tasks "
        f"20MB{names} fetches it, or --tasks names it"
    )


def _refuse_nothing(_spec: FamilySpec, _bundle: Bundle | None) -> str:
    return ""


async def accept_by_rule(_offer: TaskOffer) -> bool:
    """Accept a task that the rule has not refused."""
    await trio.lowlevel.checkpoint()
    return True


async def _ask(offer: TaskOffer) -> bool:
    """Show a task and ask the user; stopping the node ends the wait."""
    layers = await trio.to_thread.run_sync(sandbox_layers) if offer.has_code else ""
    for line in describe_offer(offer, layers):
        say(line)
    # A stop must not wait for the user; trio_typing does not know the argument's new name.
    answer = await trio.to_thread.run_sync(_answer, abandon_on_cancel=True)  # type: ignore[call-arg]
    return answer.strip().lower() in ("y", "yes")


def _answer() -> str:
    say("accept this task? [y/N]")
    try:
        return sys.stdin.readline()
    except (OSError, ValueError):
        return ""


def sandbox_layers() -> str:
    """Return the sandbox layers for a task's code on this machine. Blocks for about a second."""
    harmless = next(iter(PRESETS["easy"]))
    try:
        with SyncTaskWorker([harmless]) as worker:
            return worker.start().sandbox
    except TaskError as error:
        return f"unknown ({error})"


def describe_offer(offer: TaskOffer, layers: str) -> Iterator[str]:
    """Yield the lines that describe a task to the user who decides about it."""
    spec, bundle = offer.spec, offer.bundle
    config = spec.config
    title, licence, description = (str(config.get(key, "")) for key in ABOUT)
    yield ""
    yield f"task {visible_name(spec.name)}" + (f": {visible(title)}" if title else "")
    yield f"  from     {offer.sent_by}"
    num_files = len(bundle.files)
    size = f"{bundle.num_bytes:,} bytes in {num_files} file{'' if num_files == 1 else 's'}"
    rows = f", {config['rows']:,} questions" if "rows" in config else ""
    yield f"  size     {size}{rows}"
    yield f"  licence  {visible(licence) if licence else 'not stated'}"
    if description:
        yield f"  about    {_cut(description)}"
    if offer.source:
        yield f"  rows     {visible(offer.source)} is downloaded from its hub once you accept"
    if offer.has_code:
        python = [one.name for one in bundle.files if one.name.endswith(".py")]
        names = ", ".join(python) or "the unit tests in its rows"
        yield f"  code     {names} would run here, confined by: {layers}"
        yield f"           to read it: {(*spec.reward_paths, spec.path)[0]}"
    for row in offer.samples:
        yield f"  question {_cut(row.question)}"
        if row.answer:
            yield f"  answer   {_cut(row.answer)}"


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return visible(flat if len(flat) <= _MAX_SHOWN else f"{flat[:_MAX_SHOWN]}…")
