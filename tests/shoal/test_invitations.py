"""`shoal invite` and `shoal join`: a line starts a node in its swarm, or says why not."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from shoal import joined
from shoal.__main__ import main
from shoal.view.invitation import chosen
from shoal_ipc.answers.peer import JoinAddress
from shoal_p2p.net.swarm_key import SwarmKeyError, format_swarm_key, load_swarm_key
from shoal_p2p.node import Node, NodeEnd
from shoal_p2p.parts import Limits
from shoal_settings.exits import UsageExit
from shoal_settings.schema import Settings
from shoal_wire.invite import Invite, encode_invite
from shoal_wire.types import Digest
from tests.support.nodes import fresh_identity
from tests.support.peers import quiet_settings

KEY = b"k" * 32
ADDRESS = "/ip4/127.0.0.1/tcp/9/p2p/12D3KooWQK1wnefoLrcVHbbnf5tLzbopUd3K3bFAoJpA7YJgL5pV"
SAMPLE = Invite(swarm=Digest(bytes(32)), addresses=(ADDRESS,))
PRIVATE = Invite(swarm=Digest(bytes(32)), addresses=(ADDRESS,), private=True)
WITH_KEY = Invite(swarm=Digest(bytes(32)), addresses=(ADDRESS,), private=True, swarm_key=KEY)


def typed(data: bytes) -> io.TextIOWrapper:
    """Return what stands in the place of standard input."""
    return io.TextIOWrapper(io.BytesIO(data))


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    text = capsys.readouterr().err
    assert "Traceback" not in text
    (line,) = text.strip().splitlines()
    return line


def test_no_peer_no_invitation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["invite"]) == 3
    assert "no node is running in .shoal/node" in one_line(capsys)


@pytest.mark.parametrize(
    ("argv", "output"),
    [
        (["nonsense"], "begins with shoal1"),
        ([encode_invite(SAMPLE)[:-3]], "cut or altered"),
        ([f"shoal1\x1b[2J{encode_invite(SAMPLE)}"], "cut or altered"),
        (["--rounds", "3"], "comes first"),
        ([""], "not an invitation"),
        (["shoal2abc"], "another version"),
        (["no such file.txt"], "not a file that contains one"),
        (["/"], "not a file that contains one"),
        (["/dev/zero"], "not a file that contains one"),
        (["-"], "no invitation"),
        (["-", "--rounds", "3"], "no invitation"),
    ],
)
def test_a_line_that_is_none_is_one_line(
    argv: list[str], output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", typed(b""))
    assert main(["join", *argv]) == 2
    line = one_line(capsys)
    assert line.startswith("shoal join: ")
    assert output in line
    assert line.isprintable()
    assert not list(tmp_path.iterdir())


def test_the_line_may_stand_anywhere_and_sets_the_flags_of_the_node(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = encode_invite(SAMPLE)
    for argv in ((line, "--rounds", "3"), ("--rounds", "3", line)):
        assert main(["join", *argv, "--print-config", "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert shown["bootstrap"]["value"] == [ADDRESS]
        assert shown["swarm_id"]["value"] == "00" * 32
        assert shown["rounds"]["value"] == 3


def test_the_line_comes_from_a_file_or_from_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = encode_invite(SAMPLE)
    (tmp_path / "line.txt").write_text(f"\n{line}\n")
    for word in (str(tmp_path / "line.txt"), "-"):
        monkeypatch.setattr(sys, "stdin", typed(f"{line}\nnot read".encode()))
        assert main(["join", word, "--print-config", "--json"]) == 0
        output = capsys.readouterr()
        assert json.loads(output.out)["bootstrap"]["value"] == [ADDRESS]
        assert not output.err


@given(st.binary(max_size=4000))
def test_whatever_a_file_or_standard_input_holds_is_one_line(data: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file, pytest.MonkeyPatch.context() as patch:
        file.write(data)
        file.flush()
        for word in (file.name, "-"):
            patch.setattr(sys, "stdin", typed(data))
            with contextlib.redirect_stderr(io.StringIO()) as output:
                assert main(["join", word]) == 2
            assert len(output.getvalue().splitlines()) == 1


def node_of(invite: Invite, folder: Path, **changes: Any) -> Settings:
    """The settings with which a joined node is made."""
    settings = Settings(data_dir=folder, role="observe", **changes)
    made: list[Settings] = []

    def take(*, settings: Settings, **_given: Any) -> Any:
        made.append(settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joined, "make_node", take)
        joined._make(invite, settings=settings)
    return made[0]


def test_a_key_is_kept_for_its_owner_alone_and_another_is_never_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "swarm.key"
    for _ in range(2):
        assert node_of(WITH_KEY, tmp_path).swarm_key == str(kept)
    assert load_swarm_key(kept) == KEY
    kept.write_text(format_swarm_key(b"o" * 32))
    with pytest.raises(SwarmKeyError, match="another swarm"):
        node_of(WITH_KEY, tmp_path)
    assert load_swarm_key(kept) == b"o" * 32
    assert node_of(PRIVATE, tmp_path, swarm_key=str(kept)).swarm_key == str(kept)
    with pytest.raises(SwarmKeyError, match="differs from the invitation"):
        node_of(WITH_KEY, tmp_path, swarm_key=str(kept))
    with pytest.raises(UsageExit):
        node_of(PRIVATE, tmp_path)
    assert "then give --swarm-key FILE" in one_line(capsys)
    assert node_of(SAMPLE, tmp_path).swarm_key == "none"


async def test_a_node_that_waits_for_its_swarm_ends_on_a_signal(tmp_path: Path) -> None:
    settings = quiet_settings(tmp_path, bootstrap=(ADDRESS,), swarm_id="00" * 32)
    node = Node(
        identity=fresh_identity(),
        settings=settings,
        tuning=dataclasses.replace(Limits.of(settings), bootstrap_s=0.1),
    )
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            ended: list[NodeEnd] = []

            async def run() -> None:
                ended.append(await node.run())

            nursery.start_soon(run)
            await trio.sleep(0.5)
            assert not ended
            node.stop()
    assert ended == [NodeEnd.STOPPED]


def row(scope: Any, number: int, whose: Any = "self") -> JoinAddress:
    return JoinAddress(address=f"{scope}-{whose}-{number}", scope=scope, via=whose)


def test_loopback_is_named_only_where_nothing_else_is_known() -> None:
    loopback = [row("loopback", 1), row("loopback", 2, "bootstrap")]
    assert chosen(loopback) == loopback
    home = [row("private", n) for n in range(5)]
    assert chosen([*home, *loopback]) == home[:2]
    public = [row("public", n) for n in range(6)]
    boots = [row("public", n, "bootstrap") for n in range(3)]
    assert chosen([*public, *boots, *home, *loopback]) == [*public[:4], *boots[:2], *home[:2]]


def test_a_line_names_every_bootstrap_and_relay_that_has_room_by_one_address_first() -> None:
    def address_via(via: Any, peer: str, number: int) -> JoinAddress:
        return JoinAddress(
            address=f"/ip4/192.0.2.{number}/tcp/1/p2p/{peer}", scope="public", via=via
        )

    own = [address_via("self", "me", number) for number in range(4)]
    one, again = address_via("bootstrap", "one", 4), address_via("bootstrap", "one", 5)
    two, relay = address_via("bootstrap", "two", 6), address_via("relay", "relay", 7)
    assert chosen([*own[:1], one, again, two, relay]) == [own[0], one, again, two, relay]
    more = [address_via("bootstrap", f"b{number}", number) for number in range(8, 12)]
    assert chosen([*own, one, again, two, relay, *more]) == [*own, one, two, relay, more[0]]
