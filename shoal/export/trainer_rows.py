"""Rows for trainers that learn from fixed data: TRL's SFT, DPO and KTO, by their columns. Pure.

A completion is right if its reward, 0 to 1, is above one half. A completion that was cut at its
length limit is never shown as an example, since it would teach not to end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from shoal_wire.types import FinishReason

RIGHT_ABOVE: Final = 0.5
PURPOSES: Final[Mapping[str, str]] = {
    "sft": "prompt:turns completion:turns",
    "dpo": "prompt:turns chosen:turns rejected:turns",
    "kto": "prompt:turns completion:turns label:switch",
}
"""Columns by trainer, with their types; `PROVENANCE` follows."""
PROVENANCE: Final = "family:text publisher:text group_id:text"

Row = dict[str, Any]


def trainer_rows(purpose: str, row: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the rows that an exported group gives for `sft`, `dpo` or `kto`.

    SFT gets every right completion, DPO the best and the worst of a group whose rewards differ, and
    KTO every completion with its label. A group without question or rewards gives none.
    """
    if row["rewards"] is None or row["prompt"] is None:
        return
    provenance = {name: row[name] for name in ("family", "publisher", "group_id")}
    scored = [
        (reward, _completion(row, index), row["finish_reasons"][index] == FinishReason.STOP)
        for index, reward in enumerate(row["rewards"])
    ]
    prompt = row["prompt"]
    if purpose == "dpo":
        ended = [(reward, completion) for reward, completion, is_ended in scored if is_ended]
        if ended:
            best = max(ended, key=lambda one: one[0])
            worst = min(scored, key=lambda one: one[0])
            if best[0] > worst[0]:
                yield {"prompt": prompt, "chosen": best[1], "rejected": worst[1], **provenance}
        return
    for reward, completion, is_ended in scored:
        label = reward > RIGHT_ABOVE
        if label and not is_ended:
            continue
        if purpose == "kto":
            yield {"prompt": prompt, "completion": completion, "label": label, **provenance}
        elif label:
            yield {"prompt": prompt, "completion": completion, **provenance}


def _completion(row: Mapping[str, Any], index: int) -> list[dict[str, str]]:
    """Return a completion as messages: of a game, all that follows the prompt."""
    if row["messages"] is not None:
        conversation: list[dict[str, str]] = row["messages"][index][len(row["prompt"]) :]
        return conversation
    return [{"role": "assistant", "content": row["completions"][index]}]
