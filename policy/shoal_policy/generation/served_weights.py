"""Weights for a server that follows the policy: written to a folder both see, then asked for.

    adapters   served/NAME-N-vVERSION/ ─▶ POST /v1/load_lora_adapter, then the last one is unloaded
    all        served/model/*.safetensors ─▶ POST /collective_rpc reload_weights, prefixes forgotten

An adapter's name holds its version, so no request is answered by another one without a trace. All
weights are those of the folder that the server was started on: restarted, it reads the newest.

A file of tied weights names both, the output matrix and the embedding that it equals. What is not
named vLLM leaves as it was (0.32, `model_loader/reload/layerwise.py`), and its CPU build computes
with a packed copy of the output matrix.

vLLM: `docs/features/lora.md` and its development endpoints (``VLLM_SERVER_DEV_MODE=1``).
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

import torch

from shoal_policy.generation.replies import BadReplyError
from shoal_policy.generation.requests import BUSY, InferenceServer, Reply, ServerRefusedError
from shoal_policy.model.loading import Policy
from shoal_policy.model.lora import save_adapter
from shoal_policy.model.writing import failures_as_os_errors

MODEL_FOLDER = "model"
_ADAPTERS = (
    "start vLLM with --enable-lora --max-lora-rank RANK and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"
)
_RELOADS = "start vLLM on that folder, with VLLM_SERVER_DEV_MODE=1"
_PROCESSED = "with --logprobs-mode processed_logprobs"


class AdapterPusher:
    """Gives a server one adapter after another, each under a name of its own."""

    def __init__(self, server: InferenceServer, folder: Path) -> None:
        """`folder` is the trainer's own; what is in it is replaced."""
        self._server, self._folder = server, folder
        # Two trainers may share a server; and a run's names must not be an earlier run's.
        self._name, self._number = f"shoal-{secrets.token_hex(4)}", 0
        self._loaded = ""
        self.remedy = f"start vLLM on the model that is trained, {_PROCESSED}"
        """The remedy, as the user reads it, where a server took weights and answers with others."""

    def push(self, policy: Policy, version: int) -> str:
        """Give a policy's weights; return the name to ask for. Blocks.

        Raises Fault or ServerRefusedError.
        """
        self._number += 1
        name = f"{self._name}-{self._number}-v{version}"
        _replaced(self._folder / name, lambda folder: save_adapter(policy, folder))
        path = str((self._folder / name).resolve())
        document = {"lora_name": name, "lora_path": path}

        def once() -> Reply | None:
            reply = self._server.post(f"{self._server.base_url}/load_lora_adapter", document)
            # Loaded by an attempt whose reply was lost.
            known = reply.status == 400 and "already" in reply.said and name in reply.said
            return reply if known else _taken(reply, self._server, f"loads no adapter: {_ADAPTERS}")

        self._server.persist(once)
        self._forget(self._loaded)
        self._loaded = name
        return name

    def _forget(self, name: str) -> None:
        """Unload an adapter and delete its files; a server that does not lets it fade away."""
        for old in self._folder.iterdir():
            if old.name.startswith("shoal-") and not old.name.startswith(self._name):
                shutil.rmtree(old, ignore_errors=True)
        if not name:
            return
        try:
            address = f"{self._server.base_url}/unload_lora_adapter"
            self._server.post(address, {"lora_name": name})
        except Exception:  # noqa: BLE001 - it holds no more than its own limit of adapters
            return
        finally:
            shutil.rmtree(self._folder / name, ignore_errors=True)


class WholePusher:
    """Gives a server all weights, in the folder that it was started on."""

    def __init__(self, server: InferenceServer, folder: Path, model: str) -> None:
        """`model` is the server's name of its one model."""
        self._server, self._folder, self._model = server, folder / MODEL_FOLDER, model
        self._root = server.base_url.removesuffix("/v1")
        self.remedy = (
            f"start vLLM 0.32 or later again on {self._folder}, {_PROCESSED}, "
            "or train adapters (--lora-rank 16)"
        )

    def push(self, policy: Policy, version: int) -> str:
        """See `AdapterPusher.push`."""

        def write(folder: Path) -> None:
            _save_every_name(policy, folder)
            policy.tokenizer.save_pretrained(folder)

        _replaced(self._folder, write)
        self._ask("/collective_rpc", {"method": "reload_weights"})
        # What it has computed of prompts belongs to the weights that it had.
        self._ask("/reset_prefix_cache?reset_running_requests=true", {})
        return self._model

    def _ask(self, path: str, document: dict[str, str]) -> None:
        why = f"does not reload its weights from {self._folder}: {_RELOADS}"
        self._server.persist(
            lambda: _taken(self._server.post(self._root + path, document), self._server, why)
        )


Pusher = AdapterPusher | WholePusher
"""A way to give a server the policy's weights."""


def _save_every_name(policy: Policy, folder: Path) -> None:
    """Write a policy's model with each of its weights under its name, tied ones too."""
    weights: dict[str, torch.Tensor] = {}
    places: set[int] = set()
    for name, weight in (policy.weights() or policy.model.state_dict()).items():
        # transformers leaves out a name whose weight lies where another's does.
        weights[name] = weight.to("cpu", copy=True) if weight.data_ptr() in places else weight
        places.add(weight.data_ptr())
    policy.model.save_pretrained(folder, state_dict=weights)


def _taken(reply: Reply, server: InferenceServer, why: str) -> Reply:
    """Return a reply that agrees. Raises Fault for one that may yet, RemoteError for another."""
    if reply.status == 200:
        return reply
    if reply.status in BUSY:
        raise BadReplyError(f"status {reply.status}", reply.retry_after)
    raise ServerRefusedError(f"{server.base_url} {why} (status {reply.status} {reply.said})")


def _replaced(folder: Path, write: Callable[[Path], None]) -> None:
    """Write a folder file by file, each there whole or as it was. Raises Fault where it cannot."""
    staged = folder.with_name(f"{folder.name}.tmp")
    try:
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir(parents=True)
        with failures_as_os_errors():
            write(staged)
        folder.mkdir(exist_ok=True)
        written = sorted(staged.iterdir())
        for file in written:
            file.replace(folder / file.name)
        for old in folder.glob("*.safetensors"):  # a model's parts may be fewer than they were
            if old.name not in {file.name for file in written}:
                old.unlink()
    except OSError as error:
        raise BadReplyError(f"cannot write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)
