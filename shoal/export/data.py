"""`shoal export data`: the rollouts a node has seen, as a data set."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from shoal.counted import Counted
from shoal.export.rows import RowMaker, Tally, items_of
from shoal.export.sinks import COLUMNS, Card, open_sinks
from shoal.export.trainer_rows import PROVENANCE, PURPOSES, trainer_rows
from shoal.nearby import folder_with
from shoal_base.bounded import FEW
from shoal_base.extras import how_to_get, missing_for_tasks
from shoal_base.lines import say, say_json, say_lines
from shoal_p2p.store.archive import (
    ARCHIVE_FILE,
    Archived,
    ArchiveError,
    count_archive,
    read_archive,
    read_manifests,
)
from shoal_settings.exits import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_NO_NODE,
    EXIT_OK,
    fail,
)
from shoal_settings.parser import Parser, data_dir_flag, path
from shoal_tasks.run_memory import saved_task_files
from shoal_tasks.spec import FamilySpec
from shoal_tasks.swarm import specs_of
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.errors import ManifestError
from shoal_wire.manifest import decode_manifest

DESCRIPTION = """\
Write the rollouts that a node has seen, local and external, as Parquet and JSON lines: one row per
group, with question, completions, rewards by this installation's verifier, and provenance. The node
may be running. `datasets.load_dataset("DIR")` reads the result.

  shoal export data --out rollouts   both formats, into a new folder
  shoal export data --for sft        right completions, for TRL's SFTTrainer

Exit codes: 0 ok, 1 failed, 2 usage, 3 no node was there."""

FORMATS = ("parquet", "jsonl")


def main(argv: Sequence[str]) -> int:
    """Run `shoal export data`; return the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        return _run(arguments)
    except (ArchiveError, ManifestError) as error:
        return fail("export data", str(error)).code
    except OSError as error:
        where = error.filename or arguments.out
        return fail("export data", f"{where}: {error.strerror}", EXIT_FAILED).code
    except KeyboardInterrupt:
        return fail("export data", "interrupted; the files are incomplete", EXIT_INTERRUPTED).code


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="shoal export data", description=DESCRIPTION)
    data_dir_flag(parser, "the node's folder (.shoal/node, or the archive used last)")
    parser.add_argument(
        "--out", type=path, default=Path("rollouts"), metavar="DIR", help="new folder (rollouts)"
    )
    parser.add_argument(
        "--format", action="append", choices=FORMATS, help="write only this (both)", default=[]
    )
    parser.add_argument(
        "--for",
        dest="purpose",
        choices=PURPOSES,
        help="write rows for this trainer of TRL in place of groups",
    )
    parser.add_argument("--own", action="store_true", help="only what this node generated")
    parser.add_argument(
        "--no-verify", action="store_true", help="omit questions and rewards (faster)"
    )
    parser.add_argument(
        "--tasks",
        dest="task_files",
        action="append",
        metavar="FILE",
        help="task files to use in place of those that the node was started with",
    )
    parser.add_argument(
        "--hub", metavar="OWNER/NAME", help="then push it as a private data set (needs a login)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    return parser


def _run(arguments: argparse.Namespace) -> int:
    formats = tuple(arguments.format) or FORMATS
    _check(arguments, formats)
    card, tally = _write(arguments, formats)
    if arguments.hub:
        _push(arguments.out, arguments.hub)
    report = {
        "schema_version": 1,
        "out": str(arguments.out),
        "groups": card.groups,
        "rows": card.rows,
        "completions": card.completions,
        "publishers": len(card.publishers),
        "mean_reward": card.mean_reward,
        "damaged_batches": tally.damaged,
        "groups_not_verified": card.groups if arguments.no_verify else tally.unknown,
        "pushed_to": arguments.hub,
    }
    if arguments.json:
        say_json(report)
    else:
        say_lines(_sentence(report))
    return EXIT_OK


def _is_there(path: Path) -> bool:
    """Return whether a file exists; True also if permission to look is missing."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # Opening it reports the reason.
    return True


def _write(arguments: argparse.Namespace, formats: Sequence[str]) -> tuple[Card, Tally]:
    """Write rows and card; return the card and the tally."""
    path = folder_with(ARCHIVE_FILE, arguments.data_dir) / ARCHIVE_FILE
    if not _is_there(path):
        why = f"no archive of rollouts in {path.parent}; name the --data-dir of a node"
        raise fail("export data", why, EXIT_NO_NODE)
    families = _families(path, arguments.task_files or saved_task_files(path.parent))
    num_batches = count_archive(path, own=arguments.own)
    card, tally = Card(), Tally()
    with contextlib.ExitStack() as stack:
        purpose = arguments.purpose
        columns = f"{PURPOSES[purpose]} {PROVENANCE}" if purpose else COLUMNS
        writers = stack.enter_context(open_sinks(arguments.out, formats, columns))
        worker = None
        if not arguments.no_verify and families:
            if (missing := missing_for_tasks()) is not None:
                raise fail("export data", f"{missing} (or --no-verify)")
            worker = stack.enter_context(SyncTaskWorker(families))
        counted = stack.enter_context(Counted("batches", num_batches))
        maker, done = RowMaker(worker, families, tally), 0
        counted.update(done)
        for chunk in _chunks(path, own=arguments.own):
            groups = list(maker.rows([item for batch in chunk for item in items_of(batch, tally)]))
            rows = (
                [row for one in groups for row in trainer_rows(purpose, one)] if purpose else groups
            )
            for write in writers:
                write(rows)
            card.count(groups)
            card.rows += len(rows)
            done += len(chunk)
            counted.update(done)
    card.write(arguments.out, formats, purpose)
    return card, tally


def _check(arguments: argparse.Namespace, formats: Sequence[str]) -> None:
    """Check all arguments before anything is written. Raises UsageExit."""
    if arguments.out.exists() and any(arguments.out.iterdir()):
        raise fail("export data", f"{arguments.out} is not empty: choose another --out")
    needed = {"pyarrow": "parquet" in formats, "huggingface_hub": bool(arguments.hub)}
    for module, wanted in needed.items():
        if wanted and importlib.util.find_spec(module) is None:
            instead = "" if arguments.hub else "; --format jsonl needs nothing more"
            raise fail("export data", f"{module} is not installed: {how_to_get('export')}{instead}")
    if arguments.purpose and arguments.no_verify:
        raise fail("export data", "--for chooses rows by their rewards: omit --no-verify")
    if arguments.hub and arguments.hub.count("/") != 1:
        raise fail("export data", f"--hub {arguments.hub!r} is not OWNER/NAME")


def _families(path: Path, task_files: Sequence[str]) -> tuple[FamilySpec, ...]:
    """Return the families of every swarm in the archive that this installation can regenerate."""
    found: dict[str, FamilySpec] = {}
    for raw in read_manifests(path):
        try:
            for spec in specs_of(decode_manifest(raw), task_files):
                found.setdefault(spec.name, spec)
        except ManifestError as error:
            say(f"shoal export data: {error}: exported without rewards", error=True)
    return tuple(found.values())


def _chunks(path: Path, *, own: bool) -> Iterator[list[Archived]]:
    """Yield the archive in chunks of batches, or only the node's own batches."""
    batches = (batch for batch in read_archive(path) if batch.own or not own)
    while chunk := list(islice(batches, FEW)):
        yield chunk


def _push(folder: Path, name: str) -> None:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    api = HfApi()
    try:
        api.create_repo(name, repo_type="dataset", private=True, exist_ok=True)
        api.upload_folder(repo_id=name, repo_type="dataset", folder_path=folder)
    except (HfHubHTTPError, OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise fail(
            "export data", f"not pushed: {first} (the files are in {folder})", EXIT_FAILED
        ) from None


def _sentence(report: dict[str, Any]) -> str:
    reward = "-" if report["mean_reward"] is None else f"{report['mean_reward']:.3f}"
    authors = f"{report['publishers']} publisher{'s' * (report['publishers'] != 1)}"
    lines = [
        f"{report['groups']} groups, {report['completions']} completions of {authors}, "
        f"mean reward {reward}: {report['out']}"
    ]
    if report["rows"] != report["groups"]:
        lines.append(f"{report['rows']} rows for the trainer")
    if report["damaged_batches"]:
        lines.append(f"{report['damaged_batches']} damaged batches skipped")
    if report["groups_not_verified"]:
        lines.append(f"{report['groups_not_verified']} groups without questions and rewards")
    if report["pushed_to"]:
        lines.append(f"pushed to {report['pushed_to']}")
    return "\n".join(lines)
