"""Conversations as token ids; tools that a model is offered, and the calls in its answer.

    messages, tools ─▶ chat template ─▶ token ids          answer ─▶ text, tool calls

Tools work where the model's chat template has them and writes calls as `<tool_call>{json}
</tool_call>`, the form of Hermes, Qwen and SmolLM3.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from jinja2 import TemplateError

from shoal_policy.model.loading import Policy, PromptFormat
from shoal_policy.model.prompting import encode_prompt
from shoal_policy.serving.requests import MAX_ITEMS, BadRequestError

TOOL_CALL: Final = "<tool_call>"
"""The text with which a call begins."""
_CALL: Final = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
_ROLES: Final = ("system", "developer", "user", "assistant", "tool")


def offered_tools(policy: Policy, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tools that a request offers to the model; empty without any.

    Raises:
        BadRequestError: they are malformed, or the model's chat template has no tools.
    """
    tools, choice = body.get("tools") or [], body.get("tool_choice")
    if choice not in (None, "auto", "none"):
        raise BadRequestError("tool_choice may be auto or none", param="tool_choice")
    if not isinstance(tools, list) or len(tools) > MAX_ITEMS or not all(map(_is_tool, tools)):
        raise BadRequestError(
            f"tools must be a list of at most {MAX_ITEMS} functions with names", param="tools"
        )
    if any(one["function"].get("strict") for one in tools):
        raise BadRequestError("strict is not supported: omit it from tools", param="tools")
    if not tools or choice == "none":
        return []
    template = policy.tokenizer.chat_template
    texts = template.values() if isinstance(template, dict) else [template or ""]
    if policy.prompt_format is not PromptFormat.CHAT or not any(TOOL_CALL in one for one in texts):
        raise BadRequestError(
            f"the chat template of {policy.name!r} has no {TOOL_CALL} tools: omit tools",
            param="tools",
        )
    return tools


def _is_tool(tool: object) -> bool:
    function = tool.get("function") if isinstance(tool, dict) else None
    return (
        isinstance(tool, dict)
        and tool.get("type") == "function"
        and isinstance(function, dict)
        and isinstance(function.get("name"), str)
    )


def conversation_ids(
    policy: Policy, messages: object, tools: Sequence[Mapping[str, Any]] = ()
) -> list[int]:
    """Return a conversation's token ids: by the chat template, or of its only question.

    Raises:
        BadRequestError: the messages are malformed, or the model does not take them.
    """
    if not isinstance(messages, list) or not messages:
        raise BadRequestError("messages must be a list of at least one message", param="messages")
    turns = [_turn(one) for one in messages]
    if policy.prompt_format is PromptFormat.CHAT:
        try:
            return list(
                policy.tokenizer.apply_chat_template(
                    turns,
                    tools=list(tools) or None,
                    add_generation_prompt=True,
                    enable_thinking=False,
                    tokenize=True,
                    return_dict=False,
                )
            )
        except (TemplateError, TypeError) as error:
            raise BadRequestError(
                f"the model's chat template rejects this: {' '.join(str(error).split())}",
                param="messages",
            ) from None
    *before, last = turns
    if last["role"] != "user" or any(turn["role"] != "system" for turn in before):
        raise BadRequestError(
            "this model has no chat template: send one user message", param="messages"
        )
    system = "\n\n".join(turn["content"] for turn in before)
    return encode_prompt(policy, last["content"], system=system)


def _turn(message: object) -> dict[str, Any]:
    if not isinstance(message, dict) or message.get("role") not in _ROLES:
        raise BadRequestError(
            f"each message needs a role ({', '.join(_ROLES)}) and a content of text",
            param="messages",
        )
    role, content, calls = message["role"], message.get("content"), message.get("tool_calls")
    if isinstance(content, list):  # parts of text, as some clients send them
        parts = [one.get("text") if isinstance(one, dict) else None for one in content]
        content = "".join(map(str, parts)) if None not in parts else None
    turn: dict[str, Any] = {"role": "system" if role == "developer" else role}
    if calls and role == "assistant":
        turn["tool_calls"] = [_call_for_template(call) for call in calls]
        content = content or ""
    if not isinstance(content, str):
        raise BadRequestError("each message needs a role and a content of text", param="messages")
    if role == "tool" and isinstance(message.get("name"), str):
        turn["name"] = message["name"]
    return {**turn, "content": content}


def _call_for_template(call: object) -> dict[str, Any]:
    """Return a call as templates write it: with its arguments as an object, not as text."""
    try:
        function = call["function"]  # type: ignore[index]
        arguments = function["arguments"]
        parsed = json.loads(arguments) if isinstance(arguments, str) else arguments
        return {"type": "function", "function": {"name": function["name"], "arguments": parsed}}
    except (TypeError, KeyError, ValueError, RecursionError):
        raise BadRequestError(
            "each tool call needs a function with a name and JSON arguments", param="messages"
        ) from None


def split_calls(text: str) -> tuple[str, list[dict[str, Any]]]:
    """Return an answer's text without its tool calls, and the calls in OpenAI's form.

    A call that is not valid JSON with a name stays in the text.
    """
    calls: list[dict[str, Any]] = []

    def take(found: re.Match[str]) -> str:
        try:
            call = json.loads(found[1])
            name, arguments = call["name"], call.get("arguments", {})
        except (ValueError, KeyError, TypeError, RecursionError):
            return found[0]
        if not isinstance(name, str):
            return found[0]
        calls.append(
            {
                "id": f"call_{secrets.token_hex(12)}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
        )
        return ""

    rest = _CALL.sub(take, text)
    return (rest.rstrip() if calls else text), calls
