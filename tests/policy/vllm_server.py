"""A small real server of vLLM's endpoints that shoal uses: weights that follow, tokens in and out.

By vLLM's documentation: `/v1/load_lora_adapter`, `/v1/unload_lora_adapter`, `/v1/completions` with
`return_token_ids`, `/collective_rpc` and `/reset_prefix_cache`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoal_policy.generation.probe import ANSWERS
from shoal_policy.model.loading import Policy, load_policy
from shoal_policy.model.lora import load_adapter
from tests.policy.model_server import Fate, Handler, ModelServer, drawn


class VllmServer(ModelServer):
    """`base` makes the model that adapters go onto; `folder` holds the one it was started on."""

    def __init__(
        self,
        base: Callable[[], Policy],
        *,
        folder: Path | None = None,
        fate: Fate = lambda _handler, _request: False,
    ) -> None:
        super().__init__(self._serve)
        self._base, self._folder, self.mishap = base, folder, fate
        self.served: dict[str, Policy] = {}
        self.forgotten = 0
        self.taken: Callable[[Policy | None, Policy], Policy] = lambda _had, given: given
        """Return the weights that it holds after it was given some."""
        self._had: Policy | None = None
        self.change: Callable[[dict[str, Any]], Any] = lambda reply: reply
        """Return a reply as it arrives."""
        self.change_probe: Callable[[dict[str, Any]], Any] = lambda reply: reply
        """The same of what it is compared with the policy by."""

    def requests_to(self, path: str) -> list[dict[str, Any]]:
        """The requests that came to a path."""
        found = zip(self.paths, self.requests, strict=True)
        return [request for at, request in found if at.split("?")[0] == path]

    @property
    def questions(self) -> list[dict[str, Any]]:
        """The requests for answers to questions."""
        return [
            request for request in self.requests_to("/v1/completions") if request["n"] != ANSWERS
        ]

    def _serve(self, handler: Handler, request: dict[str, Any]) -> bool:
        if self.mishap(handler, request):
            return True
        match handler.path.split("?")[0]:
            case "/v1/load_lora_adapter":
                folder = Path(request["lora_path"])
                self._take(request["lora_name"], load_adapter(self._base(), folder))
                handler.reply(200, b"Success: LoRA adapter added successfully")
            case "/v1/unload_lora_adapter":
                known = self.served.pop(request["lora_name"], None)
                handler.reply(200 if known else 404, b"")
            case "/collective_rpc":
                assert request == {"method": "reload_weights"}
                self._take("whole", load_policy(str(self._folder), device="cpu"))
                handler.reply(200, {"results": [None]})
            case "/reset_prefix_cache":
                self.forgotten += 1
                handler.reply(200, b"")
            case "/v1/completions":
                self._complete(handler, request)
            case _:
                handler.reply(404, {"detail": "Not Found"})
        return True

    def _take(self, name: str, given: Policy) -> None:
        self._had = self.served[name] = self.taken(self._had, given)

    def _complete(self, handler: Handler, request: dict[str, Any]) -> None:
        policy = self.served.get(request["model"])
        if policy is None:
            handler.reply(404, {"error": {"message": "The model does not exist."}})
            return
        how = {"num": request["n"], "seed": request["seed"]}
        with self._model:
            made = drawn(policy, request["prompt"], request, **how)
        choices = [
            {
                "index": index,
                "text": "?",
                "finish_reason": one.finish_reason.value,
                "logprobs": {"token_logprobs": one.logprobs},
                "token_ids": one.ids,
                "prompt_token_ids": request["prompt"],
            }
            for index, one in enumerate(made)
        ]
        change = self.change_probe if request["n"] == ANSWERS else self.change
        handler.reply(200, change({"model": request["model"], "choices": choices}))
