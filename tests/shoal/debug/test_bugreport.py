"""`shoal debug bugreport`: all that helps, and no key of its owner's, however it was written."""

from __future__ import annotations

import base64
import json
import os
import random
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from shoal.__main__ import main
from shoal.debug import bugreport
from shoal.debug.secrets import REMOVED, forms_of, without
from shoal.view.node import RunningNode
from shoal_p2p.data_dir import IDENTITY_FILE
from shoal_p2p.net.identity import load_or_create_identity
from shoal_p2p.net.swarm_key import format_swarm_key
from shoal_p2p.state_file import LAST_STATUS, STATE_FILE, read_state, write_state
from shoal_settings.exits import EXIT_NO_NODE
from shoal_wire.base58 import b58encode
from shoal_wire.invite import Invite, encode_invite
from shoal_wire.types import Digest

ENCODINGS: dict[str, Callable[[bytes], bytes]] = {
    "raw": lambda key: key,
    "hex": lambda key: key.hex().encode(),
    "HEX": lambda key: key.hex().upper().encode(),
    "base64": base64.b64encode,
    "urlsafe": lambda key: base64.urlsafe_b64encode(key).rstrip(b"="),
    "base64 in a longer one": lambda key: base64.b64encode(b"k" + key + b"more"),
    "base64 in another": lambda key: base64.b64encode(b"k:" + key + b"m"),
    "base58": lambda key: b58encode(key).encode(),
    "repr": lambda key: repr(key).encode(),
    "json": lambda key: json.dumps(key.decode("latin-1")).encode(),
    "colons": lambda key: key.hex(":").encode(),
}
PLACES = ("node.log", "trainer.log", "node.log.1", "metrics.jsonl", LAST_STATUS)


def unpacked(archive: Path) -> dict[str, bytes]:
    found = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            found[member.name.removeprefix("shoal-bugreport/")] = file.read()
    return found


@pytest.fixture(autouse=True)
def a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SHOAL_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_it_is_written_for_its_owner_alone_and_says_what_is_in_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("d").mkdir()
    Path("d/node.log").write_text("2026-11-22 10:00:00 INFO node: began\n")
    Path("d/metrics.jsonl").write_text('{"round": 1}\n')
    command = ["debug", "bugreport", "--data-dir", "d", "--out", "report.tar.gz"]
    assert main([*command, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    held = unpacked(Path("report.tar.gz"))
    assert answer["contents"] == [{"name": n, "bytes": len(b)} for n, b in held.items()]
    assert {"versions.json", "settings.json", "process.json", "node.log"} <= set(held)
    assert b"began" in held["node.log"]
    assert b'"round": 1' in held["metrics.jsonl"]
    assert stat.S_IMODE(Path("report.tar.gz").stat().st_mode) == 0o600
    assert main(command) == 1
    assert "cannot write report.tar.gz: File exists" in capsys.readouterr().err
    assert main([*command[:-1], "other.tar.gz"]) == 0
    assert "Read it before" in capsys.readouterr().out


def test_without_a_folder_it_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("missing", "n" * 300):
        assert main(["debug", "bugreport", "--data-dir", name]) == EXIT_NO_NODE
        (line,) = capsys.readouterr().err.splitlines()
        assert f"no folder {name}" in line


def secret_text(data: bytes) -> str:
    """Return a token as `secrets.token_urlsafe` makes them."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


keys = st.integers(0, 1 << 64).map(lambda n: random.Random(n).randbytes(32))
tokens = st.tuples(st.integers(0, 1 << 64), st.integers(16, 40)).map(
    lambda drawn: secret_text(random.Random(drawn[0]).randbytes(drawn[1]))
)
around = st.binary(max_size=20) | st.sampled_from([b"", b"key=", b'"', b"\n", b"k\xc3\xa9y: "])


planted = st.lists(
    st.tuples(
        st.sampled_from(PLACES),
        st.sampled_from(["seed", "swarm", "token", "invite", "url"]),
        st.sampled_from(sorted(ENCODINGS)),
        around,
        around,
    ),
    min_size=1,
    max_size=40,
)


secrets = {"seed": keys, "swarm_key": keys, "token": tokens, "plants": planted}
once = settings(
    phases=(Phase.generate,),  # to shrink a key takes minutes, and tells nothing
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.parametrize(
    "count", [20, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
def test_no_key_is_in_it_in_any_encoding(
    count: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @given(**secrets, in_variable=st.booleans())
    @settings(once, max_examples=count)
    def check(**drawn: Any) -> None:
        check_nothing_stays(**drawn, folder=tmp_path_factory.mktemp("d"))

    check()


@pytest.mark.parametrize("encoding", sorted(set(ENCODINGS) - {"repr", "json"}))
def test_nothing_is_left_of_an_encoded_key(encoding: str) -> None:
    key = bytes(range(3, 35))
    left = without(ENCODINGS[encoding](key), forms_of(key))
    around = 10 if "in a" in encoding else 0  # letters that contain bits of neighbouring bytes
    assert REMOVED in left
    assert len(left) <= len(REMOVED) + around, left


def check_nothing_stays(
    seed: bytes,
    swarm_key: bytes,
    token: str,
    plants: list[tuple[str, str, str, bytes, bytes]],
    in_variable: bool,
    folder: Path,
) -> None:
    """Plant secrets in logs, metrics and status; fail where the report has one of them."""
    seed = _identity(folder, seed)
    (folder / "swarm.key").write_text(format_swarm_key(swarm_key))
    environment = {"OPENAI_API_KEY": token} if in_variable else {}
    if not in_variable:
        (folder / "page-token").write_text(f"{token}\n")
    invite = encode_invite(
        Invite(
            swarm=Digest(bytes(32)),
            addresses=(f"/ip4/1.2.3.4/tcp/1/p2p/12D3KooW{'A' * 44}",),
            private=True,
            swarm_key=swarm_key,
        )
    ).encode()
    whole = {"seed": seed, "swarm": swarm_key, "token": token.encode()}
    whole |= {"invite": invite, "url": b"http://host:1/?token=" + token.encode()}
    for place, what, encoding, before, after in plants:
        secret = whole[what] if what in ("invite", "url") else ENCODINGS[encoding](whole[what])
        line = b"2026-11-22 10:00:00 INFO node: " + before + secret + after + b"\n"
        if place == LAST_STATUS:
            path = folder / STATE_FILE
            write_state(path, place, (read_state(path, place) or b"") + line)
            continue
        with (folder / place).open("ab") as file:
            file.write(line)
    parts = dict(bugreport.collect(RunningNode(folder), environment))
    for name, body in parts.items():
        for secret in (seed, swarm_key, token.encode()):
            for encoding, encode in ENCODINGS.items():
                form = encode(secret)
                core = form[4:-8] if "in a" in encoding else form.strip(b"'\"b=")
                assert core not in body, (name, encoding)
        assert invite[:20] not in body


def _identity(folder: Path, seed: bytes) -> bytes:
    """Write an identity of a seed as a node does; return the seed."""
    file = folder / IDENTITY_FILE
    made = load_or_create_identity(file).private_key_bytes
    content = file.read_bytes()
    assert made in content
    file.write_bytes(content.replace(made, seed))
    return seed


def test_the_keys_of_a_command_line_and_of_files_are_not_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that stands outside of the data directory is known by the name of its file."""
    elsewhere, folder = tmp_path / "keys", tmp_path / "d"
    elsewhere.mkdir()
    folder.mkdir()
    key = bytes(range(32))
    (elsewhere / "my.key").write_text(format_swarm_key(key))
    Path("shoal.toml").write_text(f'swarm_key = "{elsewhere / "my.key"}"')
    (folder / "node.log").write_text(
        f"2026-11-22 10:00:00 INFO node: {key.hex()} a-very-own-password\n"
    )
    parts = dict(bugreport.collect(RunningNode(folder), {"OPENAI_API_KEY": "a-very-own-password"}))
    assert key.hex().encode() not in parts["node.log"]
    assert parts["node.log"].endswith(b"INFO node: [removed] [removed]\n")


def test_any_word_of_a_command_line_may_be_no_file(tmp_path: Path) -> None:
    """An invitation is longer than a file's name may be."""
    key = tmp_path / "my.key"
    key.write_text("x" * 40)
    output = f"shoal join shoal1{'a' * 300} --data-dir=/proc/1/root/x --swarm-key '{key}'"
    assert list(bugreport._key_files(output)) == [key]
