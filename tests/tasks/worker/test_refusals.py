"""An operation refused by the sandbox is the reward's error, even if the reward catches it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal_tasks.families import coordinates
from shoal_tasks.limits import WorkerLimits
from shoal_tasks.spec import FamilySpec
from shoal_tasks.task_file import load_task_file
from shoal_tasks.worker.sync import SyncTaskWorker
from tests.support.task_files import score_of, task_file

TASK = 1 << 20
ROWS = [{"question": f"Say {n}", "answer": str(n)} for n in range(12)]

REFUSED = (
    "open('/etc/passwd')",
    "open('words.txt')",
    "open(__file__)",
    "open('/tmp/x', 'w')",
    "os.listdir('/')",
    "os.path.exists('words.txt')",
    "pathlib.Path('/etc/passwd').is_file()",
    "list(pathlib.Path('/etc').iterdir())",
    "os.access('/etc/passwd', os.R_OK)",
    "pathlib.Path('/etc/passwd').read_text()",
    "os.open('/etc/passwd', 0)",
    "os.mkdir('x')",
    "os.remove('x')",
    "os.system('true')",
    "os.fork()",
    "os.kill(1, 0)",
    "subprocess.run(['true'])",
    "subprocess.run(['true'], capture_output=True)",
    "os.posix_spawn('/bin/true', ['true'], {})",
    "os.popen('true')",
    "list(concurrent.futures.ThreadPoolExecutor().map(len, ['a']))",
    "threading.Thread(target=print).start()",
    "socket.socket()",
    "socket.getaddrinfo('localhost', 80)",
    "urllib.request.urlopen('http://127.0.0.1:1')",
    "tempfile.TemporaryDirectory()",
    "sqlite3.connect('x.db')",
    "shutil.copy('/etc/passwd', 'x')",
    "asyncio.run(asyncio.open_connection('127.0.0.1', 1))",
    "kwargs['trainer_state'].global_step",
)
CAUGHT = (
    "try:\n        {}\n    except Exception:\n        pass",
    "try:\n        {}\n    except:\n        pass",
    "try:\n        {}\n    except BaseException as error:\n        traceback.format_exc()",
    "with contextlib.suppress(Exception):\n        {}",
    "try:\n        {}\n    finally:\n        return 0.5",
    "{}",
    "swallow(lambda: {})",
    "try:\n        {}\n    except Exception:\n        logging.getLogger('x').exception('no')",
)
HEAD = (
    "import asyncio, concurrent.futures, contextlib, logging, multiprocessing, os, pathlib\n"
    "import shutil, socket, sqlite3, subprocess, tempfile, threading, traceback\n"
    "import urllib.request\n"
    "def swallow(function):\n"
    "    try:\n        return function()\n    except Exception:\n        return None\n"
)
TAIL = (
    "def reward(completions, **kwargs):\n"
    "    return [TRIED[text](kwargs) if text in TRIED else float(text == '1') for text in"
    " completions]\n"
)


def source_and_lines() -> tuple[str, dict[str, int]]:
    """Return a reward with a function for each refused call and way to catch it, by name, and the
    line of each call."""
    source, lines = HEAD, {}
    for number, (call, caught) in enumerate(itertools.product(REFUSED, CAUGHT)):
        body = f"def tried_{number}(kwargs):\n    {caught.format(call)}\n    return 0.5\n"
        before = body.split(call)[0].count("\n")
        lines[f"tried_{number}"] = source.count("\n") + before + 1
        source += body
    names = ", ".join(f"'{name}': {name}" for name in lines)
    return f"{source}TRIED = {{{names}}}\n{TAIL}", lines


def family(folder: Path, source: str, **fields: object) -> FamilySpec:
    folder.mkdir(exist_ok=True)
    (folder / "reward.py").write_text(source)
    return load_task_file(task_file(folder, "mine", ROWS, **{"reward": "reward.py", **fields}))


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SyncTaskWorker, FamilySpec]]:
    spec = family(tmp_path_factory.mktemp("refused"), source_and_lines()[0])
    with SyncTaskWorker([spec]) as one:
        yield one, spec


def test_whatever_a_reward_does_about_a_refusal_it_is_an_error_with_its_line(
    worker: tuple[SyncTaskWorker, FamilySpec],
) -> None:
    one, spec = worker
    _, lines = source_and_lines()
    found = one.score([score_of(coordinates(spec, TASK), name) for name in lines])
    calls = itertools.product(REFUSED, CAUGHT)
    for (call, _), result, line in zip(calls, found, lines.values(), strict=True):
        assert result.reward == 0.0, call
        assert "subprocess" not in call or "another process" in result.error, result.error
        assert f"reward.py, line {line}: the sandbox refuses " in result.error, (call, result)
    (fine,) = one.score([score_of(coordinates(spec, TASK), "1")])
    assert (fine.reward, fine.error) == (1.0, "")


@pytest.mark.parametrize("place", ["at its top", "in its function"])
def test_what_is_refused_at_the_start_refuses_the_family(tmp_path: Path, place: str) -> None:
    swallowed = (
        "try:\n{0}    WORDS = open('words.txt').read()\n{0}except OSError:\n{0}    WORDS = ''\n"
    )
    body = "    return [float(text == '1') for text in completions]\n"
    head = "def reward(completions, **kwargs):\n"
    source = f"{swallowed.format('')}{head}{body}"
    if place != "at its top":
        source = f"{head}    {swallowed.format('    ')}{body}"
    with pytest.raises(ValueError, match=r"line [23]: the sandbox refuses open: 'words.txt'"):
        SyncTaskWorker([family(tmp_path, source)]).start()


def test_rewards_that_evaluate_a_checked_text_work(tmp_path: Path) -> None:
    source = (
        "import re, collections, dataclasses\n"
        "def reward(completions, answer, **kwargs):\n"
        "    earned = []\n"
        "    for text, right in zip(completions, answer):\n"
        "        Point = collections.namedtuple('Point', 'x y')\n"
        "        try:\n"
        "            scope = {}\n"
        "            exec('value = ' + text, scope)\n"
        "            same = eval(text) == scope['value'] == eval(compile(text, '<x>', 'eval'))\n"
        "            earned.append(float(same and scope['value'] == int(right)))\n"
        "        except Exception:\n"
        "            earned.append(0.1)\n"
        "    return earned\n"
    )
    spec = family(tmp_path, source)
    with SyncTaskWorker([spec]) as one:
        (item,) = one.items([coordinates(spec, TASK)])
        texts = [f"{item.answer} + 0", "1 +", "__import__('os').system('true')"]
        right, wrong, hostile = one.score([score_of(coordinates(spec, TASK), t) for t in texts])
    assert (right.reward, wrong.reward) == (1.0, 0.1)
    assert hostile.reward == 0.0 and "line 8: the sandbox refuses another process" in hostile.error


def test_a_power_that_never_ends_ends_in_time(tmp_path: Path) -> None:
    source = (
        "def reward(completions, **kwargs):\n"
        "    return [float(eval(text)) if text[:2] == '9*' else 0.5 for text in completions]\n"
    )
    limits = WorkerLimits(request_timeout_seconds=1.5)
    spec = family(tmp_path, source)
    with SyncTaskWorker([spec], limits=limits) as one:
        slow, fine = one.score([score_of(coordinates(spec, TASK), t) for t in ("9**9**9**9", "x")])
    assert slow.reward == 0.0 and (slow.timed_out or slow.crashed)
    assert fine.reward == 0.5
