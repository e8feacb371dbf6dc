"""A taskset of verifiers becomes three files, and earns what verifiers itself gives."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.__main__ import main
from shoal.tasks.from_verifiers import write_files
from shoal_tasks.families import coordinates
from shoal_tasks.task_file import load_task_file
from shoal_tasks.worker.sync import SyncTaskWorker
from tests.support.task_files import score_of, task_file

IS_INSTALLED = importlib.util.find_spec("verifiers") is not None
needs_verifiers = pytest.mark.skipif(not IS_INSTALLED, reason="the extra `verifiers` is missing")

REWARDS = """\
        return float(trace.last_reply.endswith(self.data.answer))

    @vf.reward(weight=0.5)
    async def form(self, task: SumsData, trace: vf.Trace) -> dict[str, float]:
        digits = re.fullmatch(r"\\d+", trace.last_reply)
        return {"digits": float(digits is not None), "short": trace.metrics["length"] < 9}

    @vf.reward(weight=-0.5, priority=3)
    async def shouts(self, trace: vf.Trace, runtime: vf.Runtime | None = None) -> float:
        await asyncio.sleep(0)
        assert runtime is None and trace.num_turns == 1 and len(trace.messages) == 3
        return float(trace.assistant_messages[-1].content.isupper())

    @vf.reward(weight=0.0)
    async def free(self, trace: vf.Trace) -> float:
        return 9.0

    @vf.metric
    async def length(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply))

    @vf.stop
    async def single_turn(self, trace: vf.Trace) -> bool:
        return trace.num_turns >= 1
"""
LOAD = """\
        for n in range(20):
            text = f"{n} + {n}?"
            prompt = [{"role": "user", "content": text}] if n % 2 else text
            data = SumsData(prompt=prompt, system_prompt=SYSTEM, answer=str(n + n))
            yield SumsTask(data, self.config.task)
"""
COMPLETIONS = ("", "NO", "{}", " {} ", "It is {}", "THE SUM IS {}", "what I count, \u2026\n{}")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield tmp_path
    for name in [name for name in sys.modules if name.split(".")[0] in ("sums", "own_sums")]:
        del sys.modules[name]


def scaffold(folder: Path) -> Path:
    """Return the folder of an environment that `vf-init sums` wrote and an author filled in."""
    from verifiers.v1.cli import init

    made = init.scaffold(init.InitConfig(name="sums", path=str(folder)))
    (made / "sums" / "prompts.py").write_text('SYSTEM = "Be brief."\n')
    path = made / "sums" / "taskset.py"
    before, _, rest = path.read_text().partition("        raise NotImplementedError(")
    middle = rest.partition("\n")[2].partition("        raise NotImplementedError(")[0]
    text = (
        f"import asyncio\nimport re\n\nfrom .prompts import SYSTEM\n{before}{REWARDS}{middle}{LOAD}"
    )
    path.write_text(text.replace('such as a reference answer."""', '"""\n\n    answer: str'))
    return made


def own_score(task: Any, completion: str) -> float:
    """Return what verifiers' own `Task.score` gives, in its own trace and a real event loop."""
    import verifiers.v1 as vf
    from verifiers.v1.graph import MessageNode
    from verifiers.v1.types import AssistantMessage, SystemMessage, UserMessage

    messages = (
        SystemMessage(content=task.data.system_prompt),
        UserMessage(content=task.data.prompt_text),
        AssistantMessage(content=completion),
    )
    trace: Any = vf.Trace(
        agent=vf.AgentInfo(config=vf.AgentConfig()),
        task=vf.TraceTask(type=type(task).__name__, data=task.data),
        nodes=[
            MessageNode(parent=n - 1 if n else None, message=one, sampled=n == 2)
            for n, one in enumerate(messages)
        ],
    )
    asyncio.run(task.score(trace))
    return float(trace.reward)


@pytest.mark.slow
@needs_verifiers
def test_a_scaffold_earns_what_verifiers_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(scaffold(tmp_path))
    keys = write_files("verifiers:sums", "sums", Path())
    assert keys["reward_range"] == [-0.5, 2.0] and keys["system"] == "Be brief."
    taskset: Any = importlib.import_module("sums").SumsTaskset
    tasks = list(taskset(importlib.import_module("sums.taskset").SumsConfig()))
    # A peer has the three files, and no module.
    spec = load_task_file(task_file(Path(), "sums", **keys))
    Path("sums").rename("gone")
    by_question = {task.data.prompt_text: task for task in tasks}
    places = [coordinates(spec, seed) for seed in range(10)]
    with SyncTaskWorker([spec]) as worker:
        cases = [
            (place, by_question[question], text.format(by_question[question].data.answer))
            for place, question in zip(places, worker.questions(places), strict=True)
            for text in COMPLETIONS
        ]
        results = worker.score([score_of(place, text) for place, _, text in cases])
    own = [own_score(task, text) for _, task, text in cases]
    assert not any(result.error for result in results)
    assert [2.5 * result.reward - 0.5 for result in results] == pytest.approx(own)
    assert len(set(own)) > 4


TASKSET = """
import verifiers.v1 as vf
{before}
class SumData(vf.TaskData):
    answer: str = "2"

class SumTask(vf.Task[SumData]):
{body}

class Sums(vf.Taskset[SumTask, vf.TasksetConfig]):
    {top}
    def load(self):
        return [SumTask(SumData({data}), self.config.task) for n in range(3)]
"""
GOOD = """
    @vf.reward
    async def right(self, trace) -> float:
        return float(trace.last_reply == self.data.answer)
"""
JUDGE = "class Correct(vf.Judge[bool]):\n    prompt = 'Right? {response}'\n"
ASKS = """
    @vf.reward
    async def brief(self, trace):
        try:
            return float((await Correct(vf.JudgeConfig()).evaluate(response=trace.last_reply)).text)
        except Exception:
            return 0.5
"""
REWARD = "    @vf.reward\n    async def brief(self, trace{more}):\n        {code}\n"
REFUSED = [
    (
        {"body": REWARD.format(more=", runtime", code="return 1.0")},
        "reward 'brief' of own_sums.Sums needs a runtime",
    ),
    ({"body": GOOD + ASKS, "before": JUDGE}, "reward 'brief' of own_sums.Sums needs a judge model"),
    (
        {
            "body": REWARD.format(
                more="",
                code="import urllib.request; return urllib.request.urlopen('http://127.0.0.1:9')",
            )
        },
        "reward 'brief' of own_sums.Sums needs the network",
    ),
    (
        {
            "body": REWARD.format(
                more="", code="import subprocess; return subprocess.run(['true']).returncode"
            )
        },
        "reward 'brief' of own_sums.Sums needs a process",
    ),
    (
        {"body": REWARD.format(more="", code="return -trace.num_output_tokens")},
        "no num_output_tokens",
    ),
    (
        {"body": REWARD.format(more="", code="return 1 / len(trace.last_reply)")},
        "own_sums.py, line 10: ZeroDivisionError",
    ),
    (
        {"body": REWARD.format(more=", answer", code="return 1.0")},
        "takes 'answer', which verifiers does not pass",
    ),
    (
        {"body": REWARD.format(more="", code="return 1.0").replace("async def", "def")},
        "is no `async def`",
    ),
    ({"body": GOOD.replace("reward", "metric")}, "no reward with a weight"),
    (
        {"body": GOOD + "\n    @vf.metric\n    async def size(self, runtime):\n        return 1.0"},
        "metric 'size' of own_sums.Sums needs a runtime",
    ),
    (
        {"body": GOOD + "\n    async def setup(self, trace, runtime):\n        ..."},
        "setup of own_sums.Sums needs a runtime",
    ),
    ({"body": GOOD, "top": "INFINITE = True"}, "endless"),
    ({"body": GOOD, "data": "prompt=None"}, "has no prompt"),
    (
        {
            "body": GOOD,
            "data": "prompt=[{'role': r, 'content': 'a'} for r in ('user', 'assistant', 'user')]",
        },
        "is a conversation (user, assistant, user)",
    ),
    ({"body": GOOD, "data": "prompt='?', image='python:3'"}, "works in a container"),
    (
        {"body": GOOD, "before": "class Own(vf.SingleAgentEnv): ...\n__all__ = ['Own', 'Sums']"},
        "its own SingleAgentEnv Own",
    ),
    ({"body": GOOD, "before": "WORDS = open('words.txt').read()"}, "words.txt"),
    ({"body": GOOD, "before": "import no_such_library"}, "No module named 'no_such_library'"),
]


def written(**parts: str) -> None:
    defaults = {"before": "", "top": "", "data": "prompt=f'{n}?'"}
    Path("own_sums.py").write_text(TASKSET.format(**{**defaults, **parts}))
    Path("words.txt").write_text("a b c")


def refusal(source: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line that `tasks new` prints for what it refuses."""
    before = set(Path().iterdir())
    assert main(["tasks", "new", source]) == 2
    error = capsys.readouterr().err
    assert error.startswith("shoal tasks new: ") and error.count("\n") == 1, error
    assert {path for path in Path().iterdir() if path.name != "__pycache__"} <= before
    return error


@needs_verifiers
@pytest.mark.parametrize(("parts", "reason"), REFUSED, ids=[reason for _, reason in REFUSED])
def test_what_shoal_does_not_give_is_refused_by_name(
    parts: dict[str, str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    written(**parts)
    assert reason in refusal("verifiers:own_sums.Sums", capsys)


@pytest.mark.parametrize(
    "source", ["verifiers:", "verifiers:no_such_module.Sums", "verifiers:no-such"]
)
def test_what_is_no_taskset_is_one_line(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert source in refusal(source, capsys)


@needs_verifiers
def test_different_system_turns_stand_before_their_questions() -> None:
    written(body=GOOD, data="prompt='Why?', system_prompt='Be brief.' if n else None")
    keys = write_files("verifiers:own_sums.Sums", "sums", Path())
    assert "system" not in keys
    rows = [json.loads(line) for line in Path("sums.jsonl").read_text().splitlines()]
    assert [row["question"] for row in rows[:2]] == ["Why?", "Be brief.\n\nWhy?"]
    assert rows[0]["answer"] == "2"


@needs_verifiers
def test_the_older_interface_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own_sums.py").write_text(
        "import verifiers as vf\nRUBRIC = vf.Rubric(funcs=[])\n"
        "def load_environment(**options):\n    return vf.SingleTurnEnv(rubric=RUBRIC)\n"
    )
    assert "supported are tasksets of verifiers.v1" in refusal("verifiers:own_sums", capsys)
