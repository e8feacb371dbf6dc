"""The remote generator as settings ask for it. No torch."""

from __future__ import annotations

import os
from collections.abc import Callable

from policy.generation.remote import RemoteConfig, RemoteGenerator
from shoal_settings.schema import Settings
from shoal_wire.types import SamplingParams


def remote_model(settings: Settings) -> str:
    """The server's name of its model."""
    return settings.model if settings.remote_model == "auto" else settings.remote_model


def remote_generator(settings: Settings, should_stop: Callable[[], bool]) -> RemoteGenerator:
    """Return the generator; nothing is asked of the server yet. Raises RemoteError."""
    return RemoteGenerator(
        RemoteConfig(
            base_url=settings.base_url,
            model=remote_model(settings),
            api_key=os.environ.get(settings.api_key_env) or None,
            request_seconds=settings.request_seconds,
            concurrency=settings.concurrency,
            want_logprobs=settings.share_logprobs,
        ),
        num_completions=settings.completions,
        sampling=SamplingParams(
            temperature=settings.temperature,
            top_p=settings.top_p,
            top_k=settings.top_k,
            max_new_tokens=settings.max_new_tokens,
        ),
        should_stop=should_stop,
    )
