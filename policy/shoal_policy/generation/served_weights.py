"""Sends the policy's weights to a server: written to a shared folder, then loaded by request.

    adapters   served/NAME-N-vVERSION/ ─▶ POST /v1/load_lora_adapter, then unload the previous one
    all        served/model/*.safetensors ─▶ POST /collective_rpc reload_weights, clear prefix cache

An adapter's name contains its version, so no other version can answer a request unnoticed. All
weights go to the folder that the server was started on: after a restart it reads the newest.

Tied weights are written under both names, output matrix and embedding. vLLM keeps the old value of
any name that is missing (0.32, `model_loader/reload/layerwise.py`), and its CPU build computes with
a packed copy of the output matrix.

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
_ADAPTER_REMEDY = (
    "start vLLM with --enable-lora --max-lora-rank RANK and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"
)
_RELOAD_REMEDY = "start vLLM on that folder, with VLLM_SERVER_DEV_MODE=1"
_LOGPROBS_FLAG = "with --logprobs-mode processed_logprobs"


class AdapterPusher:
    """Sends one adapter after another to a server, each under its own name."""

    def __init__(self, server: InferenceServer, folder: Path) -> None:
        """`folder` belongs to the trainer; its content is replaced."""
        self._server, self._folder = server, folder
        # Unique, since two trainers may share a server, and runs follow one another.
        self._name, self._number = f"shoal-{secrets.token_hex(4)}", 0
        self._loaded = ""
        self.remedy = f"start vLLM on the model that is trained, {_LOGPROBS_FLAG}"
        """Advice for the user if the server accepts weights but answers with others."""

    def push(self, policy: Policy, version: int) -> str:
        """Send a policy's weights; return the model name for requests. Blocks.

        Raises BadReplyError or ServerRefusedError.
        """
        self._number += 1
        name = f"{self._name}-{self._number}-v{version}"
        _replace_folder(self._folder / name, lambda folder: save_adapter(policy, folder))
        path = str((self._folder / name).resolve())
        document = {"lora_name": name, "lora_path": path}

        def once() -> Reply | None:
            reply = self._server.post(f"{self._server.base_url}/load_lora_adapter", document)
            # Loaded by an earlier attempt whose reply was lost.
            known = reply.status == 400 and "already" in reply.text and name in reply.text
            return (
                reply
                if known
                else _check_reply(reply, self._server, f"loads no adapter: {_ADAPTER_REMEDY}")
            )

        self._server.retry(once)
        self._unload(self._loaded)
        self._loaded = name
        return name

    def _unload(self, name: str) -> None:
        """Unload an adapter and delete its files; a server that refuses evicts it later."""
        for old in self._folder.iterdir():
            if old.name.startswith("shoal-") and not old.name.startswith(self._name):
                shutil.rmtree(old, ignore_errors=True)
        if not name:
            return
        try:
            address = f"{self._server.base_url}/unload_lora_adapter"
            self._server.post(address, {"lora_name": name})
        except Exception:  # noqa: BLE001 - the server limits its adapters itself
            return
        finally:
            shutil.rmtree(self._folder / name, ignore_errors=True)


class FullWeightsPusher:
    """Sends all weights to a server, in the folder that it was started on."""

    def __init__(self, server: InferenceServer, folder: Path, model: str) -> None:
        """`model` is the server's name of its model."""
        self._server, self._folder, self._model = server, folder / MODEL_FOLDER, model
        self._root = server.base_url.removesuffix("/v1")
        self.remedy = (
            f"start vLLM 0.32 or later again on {self._folder}, {_LOGPROBS_FLAG}, "
            "or train adapters (--lora-rank 16)"
        )

    def push(self, policy: Policy, version: int) -> str:
        """See `AdapterPusher.push`."""

        def write(folder: Path) -> None:
            _save_every_name(policy, folder)
            policy.tokenizer.save_pretrained(folder)

        _replace_folder(self._folder, write)
        self._post("/collective_rpc", {"method": "reload_weights"})
        # Its cached prefixes belong to the previous weights.
        self._post("/reset_prefix_cache?reset_running_requests=true", {})
        return self._model

    def _post(self, path: str, document: dict[str, str]) -> None:
        why = f"does not reload its weights from {self._folder}: {_RELOAD_REMEDY}"
        self._server.retry(
            lambda: _check_reply(self._server.post(self._root + path, document), self._server, why)
        )


Pusher = AdapterPusher | FullWeightsPusher
"""A way to send the policy's weights to a server."""


def _save_every_name(policy: Policy, folder: Path) -> None:
    """Write a policy's model with each weight under its name, tied ones too."""
    weights: dict[str, torch.Tensor] = {}
    places: set[int] = set()
    for name, weight in (policy.weights() or policy.model.state_dict()).items():
        # transformers skips a name whose tensor shares memory with another one.
        weights[name] = weight.to("cpu", copy=True) if weight.data_ptr() in places else weight
        places.add(weight.data_ptr())
    policy.model.save_pretrained(folder, state_dict=weights)


def _check_reply(reply: Reply, server: InferenceServer, why: str) -> Reply:
    """Return a successful reply. Raises BadReplyError to retry, otherwise ServerRefusedError."""
    if reply.status == 200:
        return reply
    if reply.status in BUSY:
        raise BadReplyError(f"status {reply.status}", reply.retry_after)
    raise ServerRefusedError(f"{server.base_url} {why} (status {reply.status} {reply.text})")


def _replace_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Replace a folder file by file, each atomically. Raises BadReplyError if that fails."""
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
        for old in folder.glob("*.safetensors"):  # the new model may have fewer files
            if old.name not in {file.name for file in written}:
                old.unlink()
    except OSError as error:
        raise BadReplyError(f"cannot write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)
