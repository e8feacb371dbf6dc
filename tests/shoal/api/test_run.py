"""`shoal.start`: a real node with its trainer, as a notebook holds it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shoal
from shoal.api.curve import HEIGHT, MOST_POINTS, WIDTH, curve_svg
from shoal.view.run import RunReader
from shoal_wire.invite import Invite, encode_invite
from tests.support.processes import LOOPBACK, ProcessManager, wait_for

pytestmark = pytest.mark.timeout(300)
QUIET = ("--listen", LOOPBACK, "--no-mdns", "--local", "2", "--completions", "2")
PAGE = Path(__file__).resolve().parents[3] / "docs/python-api.md"

NUMBERS = st.none() | st.floats() | st.integers() | st.booleans() | st.text(max_size=3)
EVENTS = st.fixed_dictionaries(
    {"event": st.sampled_from(["round", "held_out", "<x>"])},
    optional={
        "round": NUMBERS | st.integers(1, 10**6),
        "reward_local": NUMBERS | st.floats(0, 1),
        "held_out/pass@1": NUMBERS | st.floats(0, 1),
    },
)


@pytest.mark.slow
def test_the_page_s_example_trains_shows_and_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's second block, as it stands; the name of the swarm is hostile to a notebook."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    (example,) = [block for block in blocks if "shoal.start(" in block]
    start, shown = shoal.start, []

    def after_a_round(**given: Any) -> shoal.Run:
        flags = [*QUIET, "--swarm-name", "<script>x</script>"]
        run = start(**given, data_dir=tmp_path, node_flags=flags)
        wait_for(lambda: bool(run.rounds()), 120.0, "the first round")
        shown.append(run._repr_html_())
        assert run.running
        return run

    monkeypatch.setattr(shoal, "start", after_a_round, raising=False)
    names: dict[str, Any] = {}
    exec(example, names)
    run = names["run"]
    assert not run.running
    assert names["latest"] and {"question", "completions"} <= set(names["latest"][0])
    assert 0 <= names["reward"] <= 1
    (cell,) = shown
    assert "<script>" not in cell and "&lt;script&gt;" in cell
    assert "<polyline" in cell and "tiny" in cell
    assert "finished" in run._repr_html_() and "<polyline" in run._repr_html_(), "its rounds stay"
    assert run.error is None and run.status()["trainer"]["model"] == "tiny", "the last one"
    again = start(data_dir=tmp_path, node_flags=QUIET)
    with again:
        wait_for(lambda: len(again.rounds()) > len(run.rounds()[:1]), 120.0, "it to go on")


@pytest.mark.slow
def test_a_run_is_waited_for_and_its_end_is_known(tmp_path: Path) -> None:
    flags = [*QUIET, "--rounds", "3"]
    with shoal.start(data_dir=tmp_path / "a", node_flags=flags) as run:
        assert run.status()["trainer"]["model"] == "tiny", "start returns once it is loaded"
        assert run.wait(rounds=1, timeout=120) is run and len(run.rounds()) >= 1
        with pytest.raises(shoal.SwarmError, match="the node has ended after 3 rounds"):
            run.wait(rounds=9, timeout=120)
        assert run.wait() is run and run.error is None and not run.running
        assert run.status()["trainer"]["round"] == 3
        assert "finished" in run._repr_html_()
    with pytest.raises(shoal.SwarmError, match="cannot load model 'nope/nope'"):
        shoal.start("nope/nope", data_dir=tmp_path / "b", node_flags=QUIET)
    with shoal.start(data_dir=tmp_path / "c", node_flags=QUIET) as run:
        with pytest.raises(shoal.SwarmError, match=r"waited 0 s; \d+ rounds are trained"):
            run.wait(timeout=0)
        psutil.Process(run._node.pid).kill()
        with pytest.raises(shoal.SwarmError, match="the node has ended: "):
            run.wait(timeout=60)
        assert run.error


def test_completion_and_types_show_the_api() -> None:
    assert set(dir(shoal)) == {*shoal.__all__, "__version__"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", shoal.__version__)
    root = Path(__file__).resolve().parents[3]
    wheel = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    for package in wheel["targets"]["wheel"]["packages"]:
        assert (root / package / "py.typed").is_file(), package


@pytest.mark.slow
def test_it_joins_the_swarm_of_an_invitation(stage: ProcessManager, tmp_path: Path) -> None:
    node = stage.node("one", "--role=observe")
    swarm = node.ready_line["swarm"]["digest"]
    line = encode_invite(Invite(swarm=bytes.fromhex(swarm), addresses=(node.address,)))
    with shoal.start("tiny", swarm=line, data_dir=tmp_path, node_flags=QUIET) as run:
        wait_for(lambda: run.status()["peers"] == 1, 60.0, "the nodes to meet")
        assert run.status()["swarm"]["digest"] == swarm


@pytest.mark.slow
def test_node_and_trainer_end_with_the_kernel_however_it_ends(tmp_path: Path) -> None:
    script = (
        "import shoal, os, sys, time; "
        f"r = shoal.start(data_dir={str(tmp_path)!r}, node_flags={QUIET!r})"
        "\nwhile not r.rounds(): time.sleep(0.2)"
        "\nprint(r._node.pid, flush=True); sys.stdin.read(); os.kill(os.getpid(), 9)"
    )
    command = [sys.executable, "-c", script]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as program:
        assert program.stdin is not None and program.stdout is not None
        node = psutil.Process(int(program.stdout.readline()))
        family = [node, *node.children(recursive=True)]
        another_program_publishes_and_draws_nothing(tmp_path)
        program.stdin.close()
        assert program.wait(60) == -signal.SIGKILL
    assert len(family) >= 2, "node and trainer"
    wait_for(lambda: not any(map(_is_alive, family)), 60.0, "all to end with their program")


def another_program_publishes_and_draws_nothing(folder: Path) -> None:
    """The node has its own trainer, which continues."""
    with shoal.connect(folder) as swarm:
        assert swarm.publish([shoal.Group(swarm.tasks(1)[0], ["1", "2"])])
        with pytest.raises(shoal.SwarmError, match="--role observe"):
            swarm.draw(1)
        assert swarm.status()["trainer"]["restarts"] == 0


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_what_cannot_be_started_is_one_line(tmp_path: Path) -> None:
    for given_, says in (
        ({"swarm": "shoal1xyz"}, "cut or altered"),
        ({"swarm": "shoal1xyz", "tasks": "easy"}, "leave 'easy' out"),
        ({"tasks": "no-such"}, "did not start: .*no-such"),
        ({"node_flags": ["--rounds", "none"]}, "did not start: .*rounds"),
    ):
        with pytest.raises(shoal.SwarmError, match=says) as refused:
            shoal.start(data_dir=tmp_path, **given_)
        assert "\n" not in str(refused.value)


def test_a_missing_model_is_reported(tmp_path: Path) -> None:
    """The node looks at the folder before it says hello to anybody."""
    with pytest.raises(shoal.SwarmError, match="no such folder") as refused:
        shoal.start(f"{tmp_path}/none", data_dir=tmp_path / "node", node_flags=QUIET)
    assert os.linesep not in str(refused.value)


def curve_of(events: list[dict[str, Any]], folder: Path) -> str:
    """The picture of a run whose metrics.jsonl has these lines."""
    file = folder / "metrics.jsonl"
    file.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    reader = RunReader(file)
    reader.refresh()
    return curve_svg(reader.curves()["points"])


@pytest.mark.slow
@settings(max_examples=400)
@given(st.lists(EVENTS, max_size=300))
def test_the_curve_is_a_picture_within_its_frame(
    tmp_path_factory: pytest.TempPathFactory, events: list[dict[str, Any]]
) -> None:
    """400 generated runs; what a metrics file says that is no number leaves no trace."""
    picture = ElementTree.fromstring(curve_of(events, tmp_path_factory.getbasetemp()))
    (line,) = picture.iter("{http://www.w3.org/2000/svg}polyline")
    points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
    assert len(points) <= MOST_POINTS
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)


def test_the_curve_rises_where_the_reward_does(tmp_path: Path) -> None:
    events = [{"event": "round", "round": n + 1, "reward_local": n / 999} for n in range(1000)]
    events.append({"event": "held_out", "round": 1000, "held_out/pass@1": 0.5})
    picture = curve_of(events, tmp_path)
    points = re.search(r'points="([^"]*)"', picture)
    assert points is not None
    heights = [float(point.split(",")[1]) for point in points[1].split()]
    assert heights == sorted(heights, reverse=True) and len(heights) > 100
    assert picture.count("<circle") == 1
