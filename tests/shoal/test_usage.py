"""The command line as a newcomer meets it: help that explains, and one line when it is wrong."""

from __future__ import annotations

import json
import logging
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.__main__ import COMMANDS, main
from shoal_p2p.data_dir import IDENTITY_FILE, lock_data_dir
from shoal_p2p.state_file import LAST_STATUS, STATE_FILE, write_state
from shoal_settings.schema import fields_of, public_name

SETTING_COMMANDS = ("node", "bootstrap", "trainer", "swarm")
LOOPBACK = "/ip4/127.0.0.1/tcp/0"


@pytest.fixture(autouse=True)
def as_it_was(empty_folder: Path) -> Iterator[None]:
    """Commands run in an empty folder; logging is as it was after."""
    loggers = [
        logging.getLogger(name)
        for name in ("", "libp2p", "multiaddr", "zeroconf", "async_service", "asyncio")
    ]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


def run(*argv: str) -> int:
    """Run `shoal` in this process and return its exit code."""
    try:
        return main(argv)
    except SystemExit as end:  # argparse's own way out
        return int(end.code or 0)


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """Return what stands on standard error, which must be one line and no traceback."""
    text = capsys.readouterr().err
    assert "Traceback" not in text
    lines = text.strip().splitlines()
    assert len(lines) == 1, text
    return lines[0]


def test_help_names_every_command_and_what_to_start_with(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("--help") == 0
    text = capsys.readouterr().out
    for name, command in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(command.does)}", text, re.MULTILINE)
    assert "shoal node" in text
    assert run("help") == run("-h") == 0


def test_help_of_a_command_is_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("help", "bootstrap") == 0
    assert "usage: shoal bootstrap" in capsys.readouterr().out
    assert run("help", "debug", "peers") == 0
    assert "usage: shoal debug peers" in capsys.readouterr().out
    assert run("help", "nod") == 2
    assert "did you mean 'node'?" in one_line(capsys)


def test_no_command_at_all_shows_the_same_and_is_a_mistake(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run() == 2
    assert "usage: shoal COMMAND" in capsys.readouterr().out


def test_the_version_is_the_installed_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert re.fullmatch(r"shoal \d+\.\d+\S*\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("command", "part"),
    [(name, part) for name, command in COMMANDS.items() for part in command.parts],
)
def test_a_sub_command_is_another_modules(
    command: str, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command, part, "--help") == 0
    assert f"usage: shoal {command} {part} " in capsys.readouterr().out
    assert run(command, "--help") == 0
    assert f"usage: shoal {command} [" in capsys.readouterr().out


def test_an_unknown_command_is_one_line_that_names_the_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("stats") == 2
    assert "'stats' (did you mean 'status'?)" in one_line(capsys)
    assert run("nodes") == 2
    line = one_line(capsys)
    assert "'nodes'" in line
    assert all(name in line for name in COMMANDS)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("node --dataset x", "no flag --dataset; see shoal node --help"),
        ("node --temp 1", "no flag --temp; see shoal node --help"),
        ("node --lrr 1", "no flag --lrr (did you mean '--lr'?)"),
        ("node --prot-mapping", "no flag --prot-mapping (did you mean '--port-mapping'?)"),
        ("node --rouns 3", "no flag --rouns (did you mean '--rounds'?)"),
        ("bootstrap --lr 1", "--lr is a flag of shoal node, shoal trainer, shoal swarm, not of"),
        ("bootstrap --rounds 3", "--rounds is a flag of shoal node, "),
        ("bootstrap --model tiny", "not of shoal bootstrap; see shoal bootstrap --help"),
        ("trainer --modle=tiny", "no flag --modle (did you mean '--model'?)"),
        ("node here", "there is one argument too many: 'here'"),
        ("debug pers", "no view 'pers' (did you mean 'peers'?); there are peers, scores"),
        ("debug status", "no view 'status'"),
        ("status --jsn", "no flag --jsn (did you mean '--json'?); see shoal status"),
        ("debug --jsn peers", "no flag --jsn (did you mean '--json'?); see shoal debug peers"),
        ("debug rollouts --limit x", "argument --limit: 'x' is not a whole number"),
        ("debug rollouts --limit 0", "argument --limit: '0' is out of range: it must be at least"),
        ("tasks gcd_easy --seed x", "argument --seed: 'x' is not a whole number"),
        ("publish --draw x", "argument --draw: 'x' is not a whole number"),
        ("answer --count -1", "argument --count: '-1' is out of range"),
        ("experiment resuls", "no preset 'resuls' (did you mean 'results'?)"),
        ("experiment results --seeds x", "argument --seeds: 'x' is not a whole number"),
        ("export", "name one of model, data"),
        ("export dat", "no command 'dat' (did you mean 'data'?); there is model, data"),
        ("export data --format parket", "no --format 'parket' (did you mean 'parquet'?)"),
        ("node --role trains", "(did you mean 'train'?)"),
        ("trainer --alone --role observe", "--role observe runs no trainer"),
        ("swarm --role observe", "--role observe runs no trainer"),
        ("node --rounds", "argument --rounds: expected one argument"),
        ("debug", "name one of peers, scores"),
        ("node --publisher-sampling unifrom", "(did you mean 'uniform'?)"),
        ("node --tasks paprr", "(did you mean 'paper'?)"),
        ("node --tasks mine.tml", "or a task file, FILE.toml"),
        ("node --tasks easy,chat", "name one preset at most"),
        ("trainer --strategy uniform+positve", "(did you mean 'positive'?)"),
        ("node --log tensorbord,wandb", "(did you mean 'tensorboard'?)"),
        ("bootstrap --log-level wrning", "(did you mean 'warning'?)"),
        ("judge repot", "no command 'repot' (did you mean 'report'?)"),
        ("completion bsh", "no shell 'bsh' (did you mean 'bash'?)"),
        ("experiment results --set rouns=3", "rouns"),
        ("node --local many", "local"),
        ("node --listen localhost:4001", "multiaddress"),
        ("bootstrap --bootstrap /ip4/127.0.0.1/tcp/4001", "/p2p/ID"),
        ("node --announce 203.0.113.7:4001", "multiaddress"),
        ("node --announce /ip4/0.0.0.0/tcp/4001", "address and port that they see"),
        ("bootstrap --announce /ip4/203.0.113.7/tcp/0", "address and port that they see"),
        ("trainer --learning-rate 0", "--learning-rate"),
        ("swarm --nodes 0", "nodes"),
        ("ps here", "there is one argument too many"),
        ("stop --timeout x", "argument --timeout: 'x' is not a whole number"),
        ("node --config absent.toml", "absent.toml"),
        ("status --config absent.toml", "absent.toml"),
    ],
)
def test_a_slip_is_one_line_that_says_what_was_meant(
    argv: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*argv.split()) == 2
    line = one_line(capsys)
    assert line.startswith(f"shoal {argv.split()[0]}")
    assert message in line


@pytest.mark.parametrize(
    "argv",
    [
        ("node", "--data-dir"),
        ("status", "--data-dir"),
        ("export", "data", "--data-dir"),
        ("export", "data", "--out"),
        ("export", "model", "--out"),
        ("stop",),
        ("publish", "f.jsonl", "--data-dir"),
        ("answer", "--data-dir"),
        ("judge", "report", "--out"),
        ("experiment", "results", "--out"),
    ],
    ids=" ".join,
)
def test_an_empty_path_is_not_the_folder_one_stands_in(
    argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*argv, "") == 2
    assert ". is the folder you are in" in one_line(capsys)
    assert not list(Path().iterdir())


def test_flags_of_a_view_may_stand_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (
        ("--json", "--data-dir", "missing", "peers"),
        ("--data-dir=missing", "peers", "--json"),
    ):
        assert run("debug", *argv) == 3
        assert "no node is running in missing" in one_line(capsys)


def test_for_a_node_that_has_ended_the_command_for_its_last_numbers_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder := tmp_path / "a node").mkdir()
    write_state(folder / STATE_FILE, LAST_STATUS, b"{}")
    assert run("debug", "peers", "--data-dir", str(folder)) == 3
    line = one_line(capsys)
    assert line.endswith(f"status --last --data-dir '{folder}'"), line


@pytest.mark.parametrize("command", SETTING_COMMANDS)
def test_print_config_shows_every_setting_and_its_source(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("shoal.toml").write_text('swarm_name = "from a file"\ntasks = "paper"')
    monkeypatch.setenv("SHOAL_TASKS", "easy-paper")
    argv = [command, "--print-config", "--data-dir", "here"]
    assert run(*argv, "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown.pop("schema_version") == 1
    assert list(shown) == [public_name(field) for field in fields_of(command)]  # type: ignore[arg-type]
    assert shown["data_dir"] == {"value": "here", "origin": "--data-dir"}
    assert shown["tasks"] == {"value": ["easy-paper"], "origin": "SHOAL_TASKS"}
    assert shown["log_level"]["origin"] == "default"
    if "swarm_name" in shown:
        assert shown["swarm_name"] == {"value": "from a file", "origin": "shoal.toml"}
    assert run(*argv) == 0
    text = capsys.readouterr().out
    assert 'data_dir = "here"  # --data-dir' in text
    assert 'tasks = ["easy-paper"]  # SHOAL_TASKS' in text
    # Looking starts nothing.
    assert [path.name for path in Path().iterdir()] == ["shoal.toml"]


def test_a_commands_own_defaults_show_as_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("bootstrap", "--print-config", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["listen"] == {"value": ["/ip4/0.0.0.0/tcp/4001"], "origin": "default"}
    assert shown["data_dir"] == {"value": ".shoal/bootstrap", "origin": "default"}


def start(command: str, *flags: str) -> int:
    """Start a peer that touches nothing outside its folder, and must not come up."""
    own = ("--role=observe", "--no-mdns") if command == "node" else ()
    return run(command, "--data-dir", "d", "--listen", LOOPBACK, *own, *flags)


@pytest.mark.parametrize("command", ["node", "bootstrap"])
def test_a_second_one_on_the_same_folder_is_refused(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with lock_data_dir(Path("d")):
        assert start(command) == 2
    line = one_line(capsys)
    assert "in use by process" in line
    assert "--data-dir" in line


@pytest.mark.parametrize("command", ["node", "bootstrap"])
def test_a_corrupt_identity_is_an_error_and_is_not_replaced(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path("d", IDENTITY_FILE)
    path.parent.mkdir()
    path.write_bytes(b"not a key")
    path.chmod(0o600)
    assert start(command) == 2
    assert "identity" in one_line(capsys)
    assert path.read_bytes() == b"not a key"


@pytest.mark.parametrize("command", ["node", "bootstrap"])
def test_an_address_that_is_taken_is_an_error(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        flags = ("--listen", f"/ip4/127.0.0.1/tcp/{port}")
        extra = ("--role=observe", "--no-mdns") if command == "node" else ()
        assert run(command, "--data-dir", "d", *flags, *extra) == 2
    line = one_line(capsys)
    assert f"cannot listen on /ip4/127.0.0.1/tcp/{port}" in line


def test_a_folder_too_deep_for_a_socket_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    deep = "/".join(["a-rather-long-name"] * 6)
    flags = ("--listen", LOOPBACK, "--role=observe", "--no-mdns", "--log-level", "error")
    assert run("node", "--data-dir", str(Path(deep).absolute()), *flags) == 2
    assert "too long for a socket" in one_line(capsys)


@pytest.mark.parametrize("command", ["node", "bootstrap", "swarm"])
def test_a_file_where_the_folder_should_be_is_an_error(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("d").write_text("")
    assert run(command, "--data-dir", "d") == 2
    assert "cannot use d as a folder" in one_line(capsys)


def test_a_swarm_whose_first_peer_does_not_start_says_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = Path("s", "bootstrap", IDENTITY_FILE)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"not a key")
    path.chmod(0o600)
    assert run("swarm", "--data-dir", "s", "--nodes", "1") == 1
    line = one_line(capsys)
    assert "identity" in line
    assert str(path.parent) in line


def test_a_second_swarm_in_the_same_folder_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with lock_data_dir(Path("s")):
        assert run("swarm", "--data-dir", "s") == 2
    assert "in use by process" in one_line(capsys)


HEAVY = ("torch", "transformers", "libp2p", "reasoning_gym")


@pytest.mark.parametrize(
    ("argv", "absent"),
    [
        (("--help",), (*HEAVY, "trio", "pydantic", "rich", "shoal_p2p", "shoal_policy")),
        (("debug", "--help"), HEAVY),
        (("trainer", "--help"), (*HEAVY, "trio")),
    ],
    ids=" ".join,
)
def test_help_does_not_load_what_it_does_not_need(
    argv: tuple[str, ...], absent: tuple[str, ...]
) -> None:
    code = (
        "import sys\n"
        "from shoal.__main__ import main\n"
        f"try: main({argv!r})\n"
        "except SystemExit: pass\n"
        f"print(sorted(set({absent!r}) & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stderr.strip() == "[]"
