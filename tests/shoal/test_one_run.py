"""Each command that starts a run refuses another one in its folder: one line, code 2, both ways."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.__main__ import main
from shoal_base.bounded import LINE_CHARS
from shoal_p2p.peers.manifest_source import manifest_of_settings
from shoal_settings.schema import Settings
from shoal_tasks.run_memory import save_memory
from shoal_wire.invite import Invite, encode_invite
from tests.support import factories as make
from tests.support.nodes import fresh_identity

ADDRESS = f"/ip4/127.0.0.1/tcp/9/p2p/{fresh_identity().peer_id}"
QUIET = ("--listen", "/ip4/127.0.0.1/tcp/0", "--no-mdns", "--no-http")


@pytest.fixture(autouse=True)
def in_an_empty_folder(empty_folder: Path) -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("", "libp2p", "multiaddr")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


def remember(folder: Path, *, is_founded: bool = True) -> None:
    """Leave a run of the default swarm in a folder."""
    folder.mkdir(parents=True)
    manifest = manifest_of_settings(Settings()) if is_founded else make.swarm("theirs")
    save_memory(folder, manifest, (), families=(), is_founded=is_founded)


def refusal(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(argv) == 2
    output = capsys.readouterr()
    lines = [line for line in output.err.splitlines() if line.startswith("shoal ")]
    assert len(lines) == 1, output.err
    assert "--data-dir" in lines[0] and "--new-run" in lines[0]
    assert len(lines[0]) < LINE_CHARS, "all of it is kept where a parent process tells why"
    return lines[0]


TASKS, NAME = ("--tasks", "chat-1"), ("--swarm-name", "ours")
ALONE = ("--alone", "--rounds", "1", "--log", "none")


@pytest.mark.parametrize(
    "start",
    [
        ("node", *QUIET, *TASKS),
        ("node", *QUIET, *NAME),
        ("node", *QUIET, "--role=observe", *TASKS),
        ("bootstrap", *QUIET, *TASKS),
        ("bootstrap", *QUIET, *NAME),
        ("judge", *QUIET, *NAME),
        ("trainer", *ALONE, *TASKS),
        ("swarm", "--nodes", "1", "--no-http", *TASKS),
        ("swarm", "--nodes", "1", "--no-http", *NAME),
    ],
    ids=lambda start: f"{start[0]} {start[-2]}",
)
def test_a_start_of_another_swarm(
    start: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path("run")
    remember(folder / "bootstrap" if start[0] == "swarm" else folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    line = refusal(capsys, *start, "--data-dir", "run")
    assert line.startswith(f"shoal {start[0]}: run")
    assert {path: path.read_bytes() for path in before} == before


def test_another_invitation_in_the_same_folder(capsys: pytest.CaptureFixture[str]) -> None:
    remember(Path("run"), is_founded=False)
    other = make.swarm("other")
    invite = encode_invite(Invite(swarm=other.digest, addresses=(ADDRESS,), private=False))
    Path("line").write_text(invite)
    line = refusal(capsys, "join", "line", *QUIET, "--data-dir", "run")
    assert "theirs" in line and other.short_name in line
