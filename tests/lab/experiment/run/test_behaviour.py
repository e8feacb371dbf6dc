"""Which batches members of an experiment share, and when."""

from __future__ import annotations

import random
from dataclasses import replace

from shoal_ipc.messages import Publish
from shoal_lab.experiment.plan import NodeSpec
from shoal_lab.experiment.run.behaviour import delayed, honest
from shoal_wire.types import Digest, PolicyInfo, SamplingParams

_BATCH = Publish(
    client_key=bytes(16),
    round=0,
    policy=PolicyInfo(model_name="m", tokenizer_digest=Digest(b""), policy_version=0),
    sampling=SamplingParams(temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=4),
    groups=(),
)


def test_what_is_delayed_comes_so_many_rounds_later_in_its_order() -> None:
    behave = delayed(honest, 3)
    shared = [behave(replace(_BATCH, round=number), random.Random(0)) for number in range(8)]
    assert [batch and batch.round for batch in shared] == [None, None, None, 0, 1, 2, 3, 4]


def test_a_delay_is_part_of_what_decides_a_job() -> None:
    assert NodeSpec(delay=5).to_json() != NodeSpec().to_json()
