"""`shoal debug bugreport`: everything needed to analyse a problem, in one file, without keys.

versions, settings, process, views, ends of logs and metrics ─▶ without secrets ─▶ .tar.gz
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import re
import shlex
import sqlite3
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from itertools import islice
from pathlib import Path
from typing import Any, Final

import psutil
from rich.console import Console

from shoal.debug.secrets import secrets_of, without
from shoal.json_output import BugReport, ReportFile
from shoal.layout import size
from shoal.log_lines import LOG_FILES, tail
from shoal.nearby import need_folder
from shoal.view.node import Answer, RunningNode, Tell
from shoal_base.bounded import REMEMBERED
from shoal_base.node_folders import METRICS_FILE
from shoal_ipc.answers.form import to_json
from shoal_ipc.answers.views import VIEWS
from shoal_p2p.data_dir import LOCK_FILE
from shoal_p2p.state_file import LAST_STATUS, STATE_FILE, read_state
from shoal_settings.exits import EXIT_FAILED, fail
from shoal_settings.loader import SettingsError, describe, load
from shoal_settings.parser import path
from shoal_settings.trainer_settings import API_KEY_VARIABLE

NOT_ASKED: Final = ("rollouts",)
"""Views that are skipped, since they hold answers."""
_END_BYTES: Final = 256 << 10  # some 2,000 lines of each log; a guess


def add_out(parser: argparse.ArgumentParser) -> None:
    """Add `--out`."""
    parser.add_argument(
        "--out", type=path, metavar="FILE", help="new file (default: shoal-bugreport-TIME.tar.gz)"
    )


def write(node: RunningNode, arguments: argparse.Namespace, tell: Tell) -> Iterator[Answer]:
    """Write the report; the node need not run."""
    need_folder("debug", node.data_dir)
    tell("asking the node; this takes some seconds …")
    parts = dict(collect(node, os.environ))
    out = arguments.out or Path(time.strftime("shoal-bugreport-%Y%m%d-%H%M%S.tar.gz"))
    try:
        _write_archive(out, parts)
    except OSError as error:
        raise fail("debug", f"cannot write {out}: {error.strerror}", EXIT_FAILED) from None
    contents = tuple(ReportFile(name=name, bytes=len(body)) for name, body in parts.items())
    yield to_json(BugReport(file=str(out), contents=contents))


def show(console: Console, answer: BugReport) -> None:
    """Print the path of the report and its contents."""
    for part in answer.contents:
        console.print(f"  {part.name:<26} {size(part.bytes):>10}", soft_wrap=True)
    console.print(f"written to {answer.file}", soft_wrap=True)
    console.print(
        "Your keys, invitations and tokens are not in it; ids and addresses of peers, names of "
        "models and your command line are. Read it before you share it."
    )


def collect(node: RunningNode, environment: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    """Yield the parts of the report by name, without secrets."""
    settings, process = _settings(environment), _process(node.data_dir)
    key_files = _key_files(f"{settings.get('swarm_key', {}).get('value')} {process['command']}")
    forms = secrets_of(node.data_dir, key_files, environment, API_KEY_VARIABLE)
    yield "versions.json", _json(_versions())
    for name, body in _parts(node, settings, process):
        yield name, without(body, forms)


def _parts(
    node: RunningNode, settings: Mapping[str, Any], process: Mapping[str, Any]
) -> Iterator[tuple[str, bytes]]:
    folder = node.data_dir
    yield "settings.json", _json(settings)
    yield "process.json", _json(process)
    yield "files.json", _json(_files(folder))
    for view in VIEWS:
        if view not in NOT_ASKED and (answer := node.ask_if_there(view)) is not None:
            yield f"views/{view}.json", _json(answer)
    with suppress(sqlite3.Error, ValueError):
        if (status := read_state(folder / STATE_FILE, LAST_STATUS)) is not None:
            yield "last-status.json", status
    for name in (*LOG_FILES, METRICS_FILE):
        if (folder / name).exists():
            yield name, tail(folder / name, _END_BYTES)


def _key_files(text: str) -> Iterator[Path]:
    """Yield the files that a setting or a command line names: one of them may be a key."""
    for word in re.split(r"[\s=]+", text):
        file = Path(word.strip("'\""))
        with suppress(
            OSError
        ):  # a name that is too long, such as an invitation; a folder without permission
            if file.is_file():
                yield file


def _versions() -> dict[str, Any]:
    names = {re.split(r"[ <>=~!;\[]", line)[0] for line in requires("shoal") or ()}
    return {
        "shoal": _version("shoal"),
        "python": sys.version,
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "libraries": {name: _version(name) for name in sorted(names)},
    }


@cache
def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _settings(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of file and environment; the node's flags are in its command line."""
    try:
        loaded = load("node", argparse.Namespace(), environment)
    except SettingsError as error:
        return {"error": str(error)}
    shown = describe(loaded, "node")
    return {key: row for key, row in shown.items() if row["origin"] != "default"}


def _process(folder: Path) -> dict[str, Any]:
    """Describe the process that holds the folder's lock, if it runs."""
    try:
        process = psutil.Process(int((folder / LOCK_FILE).read_text()))
        with process.oneshot():
            return {
                "pid": process.pid,
                "command": shlex.join(process.cmdline()),
                "started": time.strftime(
                    "%Y-%m-%d %H:%M:%S", time.localtime(process.create_time())
                ),
                "memory_bytes": process.memory_info().rss,
                "cpu_s": sum(process.cpu_times()[:2]),
                "threads": process.num_threads(),
            }
    except (OSError, ValueError, psutil.Error):
        return {"pid": None, "command": ""}


def _files(folder: Path) -> list[dict[str, Any]]:
    """List the files of the folder: names, sizes, permissions."""
    rows = []
    for file in sorted(islice(folder.rglob("*"), REMEMBERED)):
        try:
            seen = file.lstat()
        except OSError:
            continue
        name = str(file.relative_to(folder))
        rows.append({"name": name, "bytes": seen.st_size, "mode": oct(seen.st_mode & 0o7777)})
    return rows


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode()


def _write_archive(out: Path, parts: Mapping[str, bytes]) -> None:
    """Write a new file that only its owner can read. Raises OSError."""
    descriptor = os.open(out, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, body in parts.items():
            member = tarfile.TarInfo(f"shoal-bugreport/{name}")
            member.size, member.mtime, member.mode = len(body), int(time.time()), 0o600
            archive.addfile(member, io.BytesIO(body))
