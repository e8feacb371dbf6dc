"""The share of a node's completions that contain text planted by attackers."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from shoal_lab.experiment.run.shared_groups import SharedGroups
from shoal_wire.types import Completion, FinishReason, RolloutGroup, Task
from tests.support.factories import task


def group(texts: Sequence[str]) -> RolloutGroup:
    completions = tuple(
        Completion(text=text, num_tokens=1, finish_reason=FinishReason.STOP) for text in texts
    )
    return RolloutGroup(task=task(), completions=completions)


def verify(groups: Sequence[tuple[Task, Sequence[Completion]]]) -> list[list[float]]:
    return [[float("7" in one.text) for one in completions] for _, completions in groups]


def test_shares_are_of_all_and_of_what_earns() -> None:
    shared = SharedGroups(("!buy",))
    shared.hear([group(["!buy7", "7", "7!buy"]), group(["!buy", "no"])])
    assert shared.take_shares(verify) == {"planted": 3 / 5, "planted_right": 2 / 3}
    shared.hear([group(["!buy", "no"])])
    assert shared.take_shares(verify) == {"planted": 1 / 2, "planted_right": None}
    assert shared.take_shares(verify) == {"planted": 0.0, "planted_right": None}


@given(st.lists(st.lists(st.sampled_from(["", "7", "a", "7a", "b"]), max_size=4), max_size=4))
def test_shares_are_those_of_the_texts_however_they_are_bundled(texts: list[list[str]]) -> None:
    shared = SharedGroups(("a", "b"))
    for some in texts:
        shared.hear([group(some)])
    flat = [text for some in texts for text in some]
    right = [text for text in flat if "7" in text]
    expected = sum(text[-1:] in ("a", "b") for text in flat) / len(flat) if flat else 0.0
    shares = shared.take_shares(verify)
    assert shares["planted"] == expected
    assert shares["planted_right"] == (right.count("7a") / len(right) if right else None)
