"""A copy of the tree, in which tests change the product and run its tests."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tests.support.rooms import python_path

ROOT = Path(__file__).resolve().parents[2]


def copy_tree(folder: Path) -> None:
    """Copy all files that git tracks or would add into a folder."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip(f"git does not say what is in the tree: {listed.stderr.decode()}")
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


class Tree:
    """A copy of all files that git tracks or would add."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        copy_tree(folder)
        self._times = itertools.count(1)

    def read(self, name: str) -> str | None:
        """Return a file's text; None if there is no such file."""
        path = self.folder / name
        return path.read_text(encoding="utf-8") if path.exists() else None

    def write(self, texts: Mapping[str, str | None]) -> None:
        """Write files, by name; None removes one."""
        for name, text in texts.items():
            path = self.folder / name
            if text is None:
                path.unlink(missing_ok=True)
                continue
            path.write_text(text, encoding="utf-8")
            # Compiled files are matched by the second: two changes may fall into one.
            now = next(self._times)
            os.utime(path, (now, now))

    def generated(self) -> list[str]:
        """Return the names of the files that are generated from the code, or have such parts."""
        found = [
            path
            for pattern in ("docs/**/*.md", "proto/*/v1/*_pb2.py*", "tests/vectors/*.json")
            for path in self.folder.glob(pattern)
        ]
        return sorted(path.relative_to(self.folder).as_posix() for path in found)

    def generate(self, changed: Iterable[str]) -> None:
        """Generate what follows from changed files: `make proto`, vectors, `make tables`.

        A change that cannot be imported generates nothing, and the tests fail.
        """
        names = sorted(changed)
        commands = [
            ["-m", "grpc_tools.protoc", "-Iproto", "--python_out=proto", "--pyi_out=proto", name]
            for name in names
            if name.endswith(".proto")
        ]
        commands += [
            ["-m", name.removesuffix(".py").replace("/", ".")]
            for name in names
            if name.endswith("_golden.py")
        ]
        for words in (*commands, ["docs/site/tables.py"]):
            subprocess.run(
                [sys.executable, *words],
                cwd=self.folder,
                env=self.environment,
                capture_output=True,
                check=False,
            )

    @property
    def environment(self) -> dict[str, str]:
        """The environment of its processes: its own modules, and none of the user's settings."""
        own = {k: v for k, v in os.environ.items() if not k.startswith("SHOAL_")}
        return own | {"PYTHONPATH": python_path(self.folder)}

    def run(self, *command: str, timeout_s: float = 100) -> subprocess.CompletedProcess[str]:
        """Run a Python module with the copy's modules, and end all processes that it started.

        Raises:
            subprocess.TimeoutExpired: it took longer than `timeout_s`.
        """
        with subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                output, errors = process.communicate(timeout=timeout_s)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        return subprocess.CompletedProcess(command, process.returncode, output, errors)
