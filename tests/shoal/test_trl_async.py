"""TRL's asynchronous trainer in a swarm, next to one of our nodes.

Three parts of its surroundings need a GPU and are stood in for: FlashAttention 3, by torch's own
attention over the same segments; the transfer of weights to vLLM, by a copy to a server; and the
speed of the card, which it looks up for a metric.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import shoal
from shoal.serve import Server
from shoal.trl import STATE_FILE
from shoal.trl_async import AsyncRollouts, _Taken
from shoal_policy.model.loading import Policy, load_policy
from shoal_policy.serving.batcher import Batcher
from shoal_policy.tiny import embedded_folder
from tests.support.processes import LOOPBACK, ProcessManager, wait_for
from tests.support.servers import open_server

STEPS, SIZE = 6, 4


def varlen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    starts_q: torch.Tensor,
    starts_k: torch.Tensor,
    *_lengths: int,
    softmax_scale: float | None,
    **_options: Any,
) -> torch.Tensor:
    """Attention of each segment over its path, causal from the end: [tokens, heads, d]."""
    found = []
    bounds_q, bounds_k = starts_q.tolist(), starts_k.tolist()
    for number in range(len(bounds_q) - 1):
        queries = query[bounds_q[number] : bounds_q[number + 1]].transpose(0, 1)
        seen = slice(bounds_k[number], bounds_k[number + 1])
        keys, values = key[seen].transpose(0, 1), value[seen].transpose(0, 1)
        rows, columns = queries.shape[1], keys.shape[1]
        mask = torch.ones(rows, columns, dtype=torch.bool).tril(columns - rows)
        out = torch.nn.functional.scaled_dot_product_attention(
            queries[None],
            keys[None],
            values[None],
            attn_mask=mask,
            scale=softmax_scale,
            enable_gqa=queries.shape[0] != keys.shape[0],
        )
        found.append(out[0].transpose(0, 1))
    return torch.cat(found)


@contextmanager
def served(policy: Policy) -> Iterator[str]:
    """An inference server of a policy; its URL without `/v1`."""
    server = Server(0)
    server.batcher = Batcher(policy)
    with open_server(server) as url:
        yield url


class Copies:
    """Gives a server's policy the trainer's weights: TRL's `WeightTransferProtocol`."""

    def __init__(self, policy: Policy) -> None:
        self._weights = dict(policy.model.named_parameters())
        self.sent = 0

    def init_weight_transfer(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def destroy(self) -> None: ...

    def send_weights(self, iterator: Iterator[tuple[str, torch.Tensor]]) -> None:
        with torch.no_grad():
            for name, weight in iterator:
                if name in self._weights:  # of tied ones vLLM is given both names
                    self._weights[name].copy_(weight)
        self.sent += 1


class Seen(_Taken):
    """The queue of `AsyncRollouts`, which keeps what TRL has taken from it."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.samples: list[Any] = []

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        self.samples.append(super().get(block, timeout))
        return self.samples[-1]

    def advantages(self, *, external: bool) -> list[float]:
        """The advantages of all answers of other nodes, or of all own ones."""
        chosen = [one for one in self.samples if (one.group_id in self.external) == external]
        return [one.advantage for one in chosen]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_trl_trains_asynchronously_with_a_node(
    stage: ProcessManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asynchronous: Any = importlib.import_module("trl.experimental.async_grpo")
    packing: Any = importlib.import_module("trl.experimental.async_grpo.packing")
    monkeypatch.setattr(
        packing, "_flash_attn", lambda: SimpleNamespace(flash_attn_varlen_func=varlen)
    )
    inside: Any = importlib.import_module("trl.experimental.async_grpo.async_grpo_trainer")
    monkeypatch.setattr(inside, "get_peak_flops_per_device", lambda *_: None)
    node = stage.node(
        "one", "--model", "tiny", "--local", "4", "--completions", "6", "--round-seconds", "0.2"
    )
    flags = ["--listen", LOOPBACK, "--no-mdns", f"--bootstrap={node.address}"]
    policy = load_policy("tiny", device="cpu", seed=1)
    with shoal.connect(tmp_path / "two", node_flags=flags) as swarm, served(policy) as url:
        wait_for(lambda: swarm.status()["groups_received"] >= 40, 90.0, "groups of the node")
        args = asynchronous.AsyncGRPOConfig(
            output_dir=str(tmp_path / "out"),
            num_generations=SIZE,
            max_completion_length=24,
            per_device_train_batch_size=8 * SIZE,
            token_budget=0,
            max_steps=STEPS,
            save_steps=3,
            learning_rate=1e-3,
            vllm_server_base_url=url,
            use_cpu=True,
            bf16=False,
            report_to=[],
            disable_tqdm=True,
        )
        joined = AsyncRollouts(swarm, str(embedded_folder("tiny")), args, author="by-trl")
        joined.rollout_buffer = seen = Seen(args.queue_maxsize)
        transfer = Copies(policy)
        trainer = asynchronous.AsyncGRPOTrainer(
            str(embedded_folder("tiny")),
            args=args,
            train_dataset=joined.dataset(64),
            rollout_worker=joined,
            weight_transfer=transfer,
            callbacks=[joined.callback],
        )
        before = [one.detach().clone() for one in trainer.model.parameters()]
        trainer.train()
        assert transfer.sent == STEPS + 1
        assert joined.num_external >= STEPS
        assert any(
            not one.equal(was) for one, was in zip(trainer.model.parameters(), before, strict=True)
        )
        first = next(one for one in trainer.state.log_history if "ratio" in one)
        assert first["ratio"] == pytest.approx(1.0, abs=1e-3), "external tokens, too"
        assert first["kl"] == pytest.approx(0.0, abs=1e-4)
        assert seen.advantages(external=True) and min(seen.advantages(external=True)) > 0
        assert min(seen.advantages(external=False)) < 0
        state = json.loads((tmp_path / "out" / STATE_FILE).read_text())
        assert state["step"] == STEPS and state["groups"]
        assert swarm.unconfirmed == ()
        assert swarm.status()["groups_published"] >= STEPS
        node.wait_status(lambda s: s["groups_received"] >= STEPS, "groups of TRL's")
        node.wait_status(lambda s: s["groups_external_used"] >= 1, "learning from them")
