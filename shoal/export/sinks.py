"""Writes exported rows as Parquet and JSON lines, with a data set card."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

from shoal_base.visible import visible_name

Row = dict[str, Any]
STEM = "rollouts"
_MARKUP = re.compile(r"[!-,./:-@\[-^`{-~]|(?<![^\W_])_|_(?![^\W_])")
"""Characters that Markdown may interpret: ASCII punctuation, except underscores within words."""


_GAMES = (
    "Some families are games. Their completions hold the policy's messages, joined\n"
    "by U+001E. `messages` has each game as a conversation: a list of `role` and `content`, where\n"
    "`assistant` is the policy and `user` the environment, replayed by the exporter.\n\n"
)


_ONE_ROW = (
    "One row per group: a question, the completions of one node, their rewards by the exporter's\n"
    "verifier, and provenance.\n"
)
_FOR_TRAINER = (
    "Rows for TRL's {} trainer, chosen by rewards that the exporter's verifier computed.\n"
)


@contextmanager
def open_sinks(
    folder: Path, formats: Sequence[str], columns: str
) -> Iterator[Sequence[Callable[[Sequence[Row]], object]]]:
    """Create `folder` and yield a writer of rows for each format, in order.

    `columns` are names and types, as in `COLUMNS`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        writers: list[Callable[[Sequence[Row]], object]] = []
        if "jsonl" in formats:
            file = stack.enter_context((folder / f"{STEM}.jsonl").open("w", encoding="utf-8"))
            writers.append(partial(_write_lines, file))
        if "parquet" in formats:
            # Late: it takes a second to import, and only this command needs it.
            import pyarrow
            from pyarrow.parquet import ParquetWriter

            schema = _schema(pyarrow, columns)
            path = folder / f"{STEM}.parquet"
            parquet = stack.enter_context(ParquetWriter(path, schema, compression="zstd"))
            table = partial(pyarrow.Table.from_pylist, schema=schema)
            writers.append(lambda rows: rows and parquet.write_table(table(list(rows))))
        yield writers


def _write_lines(file: IO[str], rows: Sequence[Row]) -> None:
    file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


@dataclass(slots=True)
class Card:
    """Counts of an export, and the data set card with them."""

    groups: int = 0
    rows: int = 0
    """Rows written; for a trainer not the groups."""
    completions: int = 0
    games: int = 0
    rewarded: int = 0
    reward_sum: float = 0.0
    publishers: Counter[str] = field(default_factory=Counter)
    families: Counter[str] = field(default_factory=Counter)

    @property
    def mean_reward(self) -> float | None:
        """Mean over the completions that were scored."""
        return round(self.reward_sum / self.rewarded, 6) if self.rewarded else None

    def count(self, rows: Sequence[Row]) -> None:
        """Add rows to the counts."""
        for row in rows:
            self.groups += 1
            self.completions += len(row["completions"])
            self.games += row.get("messages") is not None
            self.publishers[row["publisher"]] += 1
            self.families[row["family"]] += 1
            if row["rewards"] is not None:
                self.rewarded += len(row["rewards"])
                self.reward_sum += sum(row["rewards"])

    def write(self, folder: Path, formats: Sequence[str], purpose: str | None = None) -> None:
        """Write the card; its header tells loaders which file to read."""
        data = f"{STEM}.{'parquet' if 'parquet' in formats else 'jsonl'}"
        families = "\n".join(f"| {_cell(name)} | {n} |" for name, n in self.families.most_common())
        reward = "not scored" if self.mean_reward is None else f"{self.mean_reward:.3f}"
        (folder / "README.md").write_text(
            "---\nconfigs:\n- config_name: default\n  data_files:\n"
            f"  - split: train\n    path: {data}\n---\n\n"
            "# Rollouts of a shoal swarm\n\n"
            f"{self.groups} groups, {self.completions} completions, "
            f"{len(self.publishers)} publishers, mean reward {reward}.\n\n"
            f"{_ONE_ROW if purpose is None else _FOR_TRAINER.format(purpose.upper())}"
            "Language models of unknown people wrote the text: treat it as untrusted.\n\n"
            f"{_GAMES if self.games else ''}"
            f"| family | groups |\n|---|---|\n{families}\n"
        )


def _cell(name: str) -> str:
    """Return a family's name escaped for a Markdown cell."""
    return _MARKUP.sub(r"\\\g<0>", visible_name(name))


COLUMNS = (
    "question:text answer:text prompt:turns completions:texts messages:games rewards:numbers "
    "finish_reasons:texts num_tokens:counts family:text config_digest:text seed:count index:count "
    "verifier:text verifier_version:text is_local:switch publisher:text model:text "
    "policy_version:count round:count temperature:number top_p:number created_ms:count "
    "received_ms:count sequence:count batch_id:text group_id:text"
)
"""The columns and their types, in the order of docs/export.md."""


def _schema(pa: Any, columns: str) -> Any:
    text, number, count = pa.string(), pa.float64(), pa.int64()
    turn = pa.struct([("role", text), ("content", text)])
    kinds = {
        "text": text,
        "number": number,
        "count": count,
        "switch": pa.bool_(),
        "texts": pa.list_(text),
        "numbers": pa.list_(number),
        "counts": pa.list_(count),
        "turns": pa.list_(turn),
        "games": pa.list_(pa.list_(turn)),
    }
    parts = (one.partition(":") for one in columns.split())
    return pa.schema([(name, kinds[kind]) for name, _, kind in parts])
