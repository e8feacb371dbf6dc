"""A family's files as they travel between peers, and a folder of files that arrived.

    FamilySpec ─ bundle_of ─▶ Bundle ─ (/shoal/tasks/1) ─▶ files ─ write_accepted ─▶ task.json
                                                                                     load_accepted

A family's configuration has the SHA-256 of each of its files, so `required_files` says what a
bundle must contain, from any sender. `DATA_DIR/tasks/DIGEST/task.json` is used like a task file.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from shoal_base.files import SMALL_FILE_BYTES, read_at_most, write_atomically
from shoal_tasks.data_files import MAX_FILE_BYTES, read_file
from shoal_tasks.errors import FamilyError
from shoal_tasks.lint.attempts import Examples
from shoal_tasks.spec import AnswerFormat, FamilySpec
from shoal_wire.limits import MAX_BUNDLE_FILES, MAX_EXAMPLE_BYTES, MAX_EXAMPLES
from shoal_wire.manifest import TaskFamily
from shoal_wire.task_messages import Bundle, BundleFile, bundle_file, is_file_name
from shoal_wire.types import Digest, PeerId

TASKS_FOLDER: Final = "tasks"
"""Folder of a data directory: what its node accepted from peers."""

ACCEPTED_FILE: Final = "task.json"

MAX_CODE_BYTES: Final = 1024 * 1024
"""Largest Python file of a task that is accepted from a peer."""

_ROWS_NAME: Final = "rows.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredFile:
    """A file without which a family's tasks cannot be made or scored."""

    sha256: bytes
    is_code: bool
    """True for a Python file; False for rows."""

    @property
    def max_bytes(self) -> int:
        """The largest such file that is accepted."""
        return MAX_CODE_BYTES if self.is_code else MAX_FILE_BYTES


def required_files(spec: FamilySpec) -> tuple[RequiredFile, ...]:
    """Return the files of a family in the order in which a bundle has them, each once."""
    if not spec.is_of_a_file:
        return ()
    main = RequiredFile(
        sha256=bytes.fromhex(str(spec.config["sha256"])), is_code=spec.is_environment
    )
    if not spec.has_python_reward:
        return (main,)
    digests = [digest for _, digest in spec.reward_names if digest is not None]
    rewards = (RequiredFile(sha256=bytes.fromhex(one), is_code=True) for one in digests)
    return tuple({one.sha256: one for one in (main, *rewards)}.values())


def can_travel(spec: FamilySpec) -> bool:
    """Return whether a family's files can be sent: there are some, and none is a node's own."""
    return spec.is_of_a_file and not spec.is_local


def files_here(spec: FamilySpec) -> tuple[Path, ...]:
    """Return where the files of a family lie on this machine, in the order of a bundle."""
    digests = [str(spec.config["sha256"])]
    if spec.has_python_reward:
        digests += [str(digest) for _, digest in spec.reward_names]
    paths = (spec.path, *spec.reward_paths)
    found = {digest: Path(path) for digest, path in zip(digests, paths, strict=True)}
    return tuple(found.values())


def bundle_of(spec: FamilySpec, examples: Examples | None = None) -> Bundle:
    """Return the bundle of a family whose files are here. Blocks. Raises `FamilyError`."""
    examples = examples or Examples()
    files: list[BundleFile] = []
    for required, path in zip(required_files(spec), files_here(spec), strict=True):
        data = read_file(path)
        if len(data) > required.max_bytes:
            raise FamilyError(
                f"{path.name} has {len(data):,} bytes, and at most {required.max_bytes:,} travel"
            )
        used = {one.name for one in files}
        files.append(bundle_file(_name(path, required, used), data))
        if files[-1].sha256 != required.sha256:
            raise FamilyError(f"{path} has changed since the start")
    if len(files) > MAX_BUNDLE_FILES:
        raise FamilyError(f"it has {len(files)} files, and at most {MAX_BUNDLE_FILES} travel")
    return Bundle(
        files=tuple(files),
        good=_short(examples.good),
        bad=_short(examples.bad),
        hub_rows=spec.hub_rows,
    )


def _name(path: Path, required: RequiredFile, used: set[str]) -> str:
    if not required.is_code:
        return _ROWS_NAME
    is_usable = is_file_name(path.name) and path.name not in {*used, ACCEPTED_FILE}
    return path.name if is_usable else f"code_{len(used)}.py"


def _short(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(one for one in texts if len(one.encode()) <= MAX_EXAMPLE_BYTES)[:MAX_EXAMPLES]


def bundle_error(spec: FamilySpec, bundle: Bundle) -> str:
    """Return why a bundle from a peer is not this family's; empty if it is."""
    required = required_files(spec)
    if [one.sha256 for one in bundle.files] != [one.sha256 for one in required]:
        return "its files are not those of the family"
    if any(
        one.num_bytes > must.max_bytes for one, must in zip(bundle.files, required, strict=True)
    ):
        return "a file is too large"
    if any(one.name == ACCEPTED_FILE for one in bundle.files):
        return f"a file has the name {ACCEPTED_FILE}"
    if bundle.hub_rows and spec.is_environment:
        return "a game has no rows"
    return ""


def accepted_task_files(data_dir: Path) -> tuple[str, ...]:
    """Return the descriptions of the tasks that a data directory has accepted, in a fixed order."""
    return tuple(map(str, sorted((data_dir / TASKS_FOLDER).glob(f"*/{ACCEPTED_FILE}"))))


def with_accepted(task_files: Sequence[str], data_dir: Path) -> tuple[str, ...]:
    """Return the user's task files, and the descriptions of the tasks accepted in `data_dir`."""
    return (*task_files, *accepted_task_files(data_dir))


def accepted_folder(data_dir: Path, spec: FamilySpec) -> Path:
    """Return the folder of an accepted family's files, whether or not it is there yet."""
    return data_dir / TASKS_FOLDER / spec.digest.hex()


def write_accepted(
    folder: Path,
    family: TaskFamily,
    bundle: Bundle,
    *,
    sent_by: PeerId,
    swarm: Digest,
    share: bool = True,
) -> Path:
    """Accept a family of a swarm, whose files lie in `folder`; return the description.

    With `share`, this node sends them to others. Raises OSError.
    """
    content = {
        "share": share,
        "swarm": swarm.hex(),
        "family": dataclasses.asdict(family),
        "files": [one.name for one in bundle.files],
        "good": list(bundle.good),
        "bad": list(bundle.bad),
        "hub_rows": bundle.hub_rows,
        "sent_by": sent_by,
    }
    path = folder / ACCEPTED_FILE
    write_atomically(path, json.dumps(content, indent=1).encode())
    return path


def keep_own(
    data_dir: Path,
    spec: FamilySpec,
    family: TaskFamily,
    examples: Examples,
    *,
    swarm: Digest,
    me: PeerId,
) -> Path:
    """Copy a family of an own task file into the tasks of a data directory; return its folder.

    It is used there like a task that was accepted. Blocks. Raises `FamilyError`, OSError.
    """
    if not can_travel(spec):
        raise FamilyError(f"{spec.name} has no file to copy: give --tasks to the node's next start")
    folder, bundle = accepted_folder(data_dir, spec), bundle_of(spec, examples)
    folder.mkdir(parents=True, exist_ok=True)
    for one, path in zip(bundle.files, files_here(spec), strict=True):
        write_atomically(folder / one.name, read_file(path))
    write_accepted(folder, family, bundle, sent_by=me, swarm=swarm, share=spec.share)
    return folder


def load_accepted(path: Path) -> FamilySpec:
    """Return the family of an accepted task. Raises `FamilyError`."""
    content = _read(path)
    try:
        family: dict[str, Any] = dict(content["family"])
        names = [str(name) for name in content["files"]]
        if not all(map(is_file_name, names)):
            raise ValueError("a file name with a folder")
        config = json.loads(family.pop("config_json"))
        spec = FamilySpec(
            **{**family, "answer_format": AnswerFormat(family["answer_format"])}, config=config
        )
        spec = with_files(spec, path.parent, names)
        share = content.get("share") is not False
        spec = dataclasses.replace(spec, hub_rows=str(content["hub_rows"]), share=share)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FamilyError(f"{path}: not an accepted task ({error})") from None
    for file in files_here(spec):
        if not file.is_file():
            raise FamilyError(
                f"{path}: {file.name} is missing: delete this folder, and a start fetches it again"
            )
    return spec


def accepted_swarm(path: Path) -> str:
    """Return the digest, in hexadecimal, of the swarm in which a task was accepted.

    Raises `FamilyError`.
    """
    return str(_read(path).get("swarm", ""))


def with_files(spec: FamilySpec, folder: Path, names: Sequence[str]) -> FamilySpec:
    """Return a family with its files in `folder`, named in a bundle's order."""
    required = required_files(spec)
    by_digest = {one.sha256: str(folder / name) for one, name in zip(required, names, strict=True)}
    rewards = spec.reward_names if spec.has_python_reward else ()
    return dataclasses.replace(
        spec,
        path=by_digest[required[0].sha256],
        reward_paths=tuple(by_digest[bytes.fromhex(str(digest))] for _, digest in rewards),
        share=True,
    )


def accepted_examples(path: Path) -> Examples:
    """Return the author's examples that arrived with an accepted task. Raises `FamilyError`."""
    content = _read(path)
    good, bad = (cast(list[str], content.get(key, [])) for key in ("good", "bad"))
    return Examples(good=tuple(map(str, good)), bad=tuple(map(str, bad)))


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(read_at_most(path, SMALL_FILE_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise FamilyError(f"{path}: not an accepted task ({error})") from None
    if not isinstance(found, dict):
        raise FamilyError(f"{path}: not an accepted task")
    return found
