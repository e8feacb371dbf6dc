"""A swarm that makes more than it can carry comes to rest at what it carries."""

from __future__ import annotations

import random
from collections import deque

from hypothesis import example, given, settings
from hypothesis import strategies as st

from shoal_p2p.rollouts.publish_backoff import MOST_GAP_S, MOST_WAIT_S, PublishBackoff

STEP_S = 0.05


class Line:
    """Publishers with one queue of limited rate, which stands for the cores of a swarm."""

    def __init__(self, every_s: list[float], carried_per_s: float) -> None:
        self.every_s = every_s
        self.restraints = [PublishBackoff(random.Random(n)) for n in range(len(every_s))]
        self.due = [STEP_S * number for number in range(len(every_s))]
        self.carried_per_s = carried_per_s
        self.queue: deque[float] = deque()
        """When each message was sent."""
        self.budget = 0.0
        self.now = 0.0
        self.received: deque[tuple[float, float]] = deque(maxlen=len(every_s))
        self.latencies: list[tuple[float, float]] = []
        """When each message came, and how late."""

    def late_s(self, sent_since: float) -> float | None:
        found = sorted(now - sent for now, sent in self.received if sent >= sent_since)
        return found[len(found) // 2] if len(found) >= 3 else None

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += STEP_S
            self._publish()
            self.budget = min(1.0, self.budget) + STEP_S * self.carried_per_s
            while self.queue and self.budget >= 1:
                self.budget -= 1
                sent = self.queue.popleft()
                self.received.append((self.now, sent))
                self.latencies.append((self.now, self.now - sent))

    def _publish(self) -> None:
        for number, restraint in enumerate(self.restraints):
            restraint.note(self.late_s(restraint.judged_since), self.now)
            if self.now >= self.due[number] and not restraint.wait_s(self.now):
                self.queue.append(self.now)
                restraint.sent(self.now)
                self.due[number] = max(self.now, self.due[number] + self.every_s[number])


@given(
    st.lists(st.floats(0.5, 5.0), min_size=4, max_size=24),
    st.floats(1.2, 2.2),
)
@example([2.0, 4.0, 4.0, 4.0], 2.125)
@example([5.0, 5.0, 5.0, 5.0], 2.2)
@example([2.0, 2.0, 2.0, 2.0], 1.25)
@settings(max_examples=10)
def test_any_mix_of_publishers_leaves_seconds_of_delay_and_a_busy_swarm(
    every_s: list[float], overload: float
) -> None:
    """Ten seconds late at most, or eight messages where it carries less than 0.8 a second.

    Found with four publishers, each with a message every two to five seconds: 18 s at 2.75 s a
    message. Lateness is known only once three messages have come. Four that had slowed down
    together sent at the same moments for ever, and used a twelfth of what was carried.
    """
    made_per_s = sum(1 / one for one in every_s)
    line = Line(every_s, made_per_s / overload)
    line.run(60.0)
    line.run(60.0)
    later = sorted(late for at, late in line.latencies if at > 30)
    assert later[int(0.99 * len(later))] < max(10.0, 8 / line.carried_per_s)
    assert len(later) > 0.25 * 90 * line.carried_per_s


def test_no_publisher_is_slowed_where_the_swarm_keeps_up() -> None:
    line = Line([1.0] * 8, 16.0)
    line.run(60.0)
    assert not any(restraint.is_slowed for restraint in line.restraints)
    assert len(line.latencies) > 8 * 58


def test_an_overload_that_ends_is_forgotten() -> None:
    line = Line([0.25] * 8, 16.0)
    line.run(30.0)
    assert any(restraint.is_slowed for restraint in line.restraints)
    line.every_s, line.due = [4.0] * 8, [line.now + 4 * n / 8 for n in range(8)]
    line.run(90.0)
    assert not any(restraint.is_slowed for restraint in line.restraints)


@given(
    st.lists(st.tuples(st.floats(0, 5), st.none() | st.floats(0, 1e6)), min_size=1, max_size=200)
)
@settings(max_examples=100)
def test_a_batch_is_published_in_the_end_at_any_reported_delay(
    notes: list[tuple[float, float | None]],
) -> None:
    restraint, now = PublishBackoff(random.Random(0)), 0.0
    for pause_s, late_s in notes:
        now += pause_s
        restraint.note(late_s, now)
        assert restraint.wait_s(now) <= MOST_WAIT_S
        restraint.sent(now)
    assert restraint.is_soon(now + MOST_GAP_S)
