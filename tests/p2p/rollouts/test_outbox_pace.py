"""An honest node never goes over the quota by which its peers judge it."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from shoal_p2p.intake.ledger import PublisherLedger
from shoal_p2p.rollouts.outbox import MAX_UNSENT, new_pace, wait_s_of
from shoal_wire.types import BatchId, PeerId

ME = PeerId("me")


@given(
    st.lists(
        st.tuples(st.integers(1, 1024), st.floats(0, 30), st.booleans()), min_size=1, max_size=80
    ),
    st.floats(0, 0.5),
)
@example([(8, 0.0, False)] * MAX_UNSENT, 0.0)  # all that waits, in one go
@settings(max_examples=120)
def test_batches_of_any_size_and_lives_of_any_length_stay_within_every_quota(
    batches: list[tuple[int, float, bool]], delay_s: float
) -> None:
    """The pace also holds over restarts within seconds; each begins with an empty measure."""
    ledger, pace, now, largest = PublisherLedger(), new_pace(0.0), 0.0, 0
    for sequence, (num_groups, pause_s, restarts) in enumerate(batches):
        now += pause_s
        if restarts and largest <= 512:
            pace = new_pace(now)
        now += wait_s_of(pace, num_groups, now)
        pace.take(num_groups, now)
        largest = max(largest, num_groups)
        arrives = now + delay_s * (sequence % 2)
        batch = BatchId(sequence.to_bytes(32, "big"))
        assert ledger.check(ME, sequence, batch, num_groups, arrives) is None
        ledger.record(ME, sequence, batch, num_groups, arrives)
