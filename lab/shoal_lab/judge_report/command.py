"""`shoal judge report`: a judge's records as a table and a figure."""

from __future__ import annotations

import argparse
import importlib.util
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import trio
from rich.table import Table

from shoal_base.files import write_atomically
from shoal_base.lines import say_json
from shoal_base.terminal import Terminal
from shoal_base.visible import visible_name
from shoal_lab.judge_report.records import (
    NoJudgeError,
    Records,
    RecordsError,
    fetch_records,
    records_in,
)
from shoal_lab.judge_report.stats import ModelComparison, compare, swarms_of, unanswered
from shoal_p2p.net.host import ListenError
from shoal_p2p.net.identity import IdentityError
from shoal_p2p.net.swarm_key import SwarmKeyError, load_swarm_key
from shoal_p2p.process import root_error
from shoal_settings.exits import EXIT_FAILED, EXIT_NO_NODE, EXIT_OK, EXIT_USAGE, UsageExit, fail
from shoal_settings.parser import Parser, path
from shoal_wire.judge_messages import JudgeRecord, Mode

DESCRIPTION = """\
Compare nodes that learn from others (swarm) with nodes that do not (silo), by the records of
judges: a judge's own folder, also while it runs, or those that it gives to anybody who asks. Peers
of one swarm are not independent: whether a difference is chance is only known from several swarms,
so name each one's judge. Every record is verified; what the judge has not signed does not count.
Needs the extra `lab`.

  shoal judge report --data-dir .shoal/judge   table and figure of one swarm

Exit codes: 0 ok, 1 failed, 2 usage."""

SCHEMA_VERSION = 3
MAX_MODELS = 16
"""Peers choose their models' names: those with the most records are compared."""
_COMMAND = "judge report"
COLUMNS = ("model", "arm", "swarms", "peers", "answers", "pass@1", "± se", "difference")


def main(argv: Sequence[str]) -> int:
    """Run `shoal judge report`; return the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        for module in ("matplotlib", "scipy"):
            if importlib.util.find_spec(module) is None:
                raise fail(_COMMAND, f"{module} is not installed: pip install 'shoal[lab]'")
        for name in ("window", "until"):
            if (value := getattr(arguments, name)) is not None and value < 1:
                raise fail(_COMMAND, f"--{name} must be 1 or more")
        return _run(arguments, _records(arguments))
    except UsageExit as end:
        return end.code
    except NoJudgeError as error:
        return fail(_COMMAND, str(error), EXIT_NO_NODE).code
    except (RecordsError, IdentityError, ListenError) as error:
        return fail(_COMMAND, str(error), EXIT_FAILED).code
    except SwarmKeyError as error:
        return fail(_COMMAND, str(error), EXIT_USAGE).code
    except OSError as error:
        where = error.filename or arguments.out
        return fail(_COMMAND, f"{where}: {error.strerror}", EXIT_FAILED).code


class _Each(argparse.Action):
    """Collects a flag that may be given several times; its values replace the default."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        before = getattr(namespace, self.dest)
        named = before if isinstance(before, list) else []
        setattr(namespace, self.dest, [*named, values])


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="shoal judge report",
        description=DESCRIPTION,
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--data-dir",
        type=path,
        action=_Each,
        default=Path(".shoal/judge"),
        metavar="DIR",
        help="judge's folder (.shoal/judge); repeatable, one for each swarm",
    )
    source.add_argument(
        "--from",
        dest="addresses",
        action="append",
        metavar="MULTIADDR",
        help="ask the judge at this address; repeatable, one for each swarm",
    )
    parser.add_argument(
        "--swarm-key", type=path, metavar="FILE", help="key of a private swarm, for --from"
    )
    parser.add_argument(
        "--out",
        type=path,
        default=Path("judge-report"),
        metavar="DIR",
        help="folder of the report (judge-report)",
    )
    parser.add_argument("--model", metavar="NAME", help="only this model")
    parser.add_argument(
        "--window", type=int, metavar="N", help="rounds in a window (about 40 windows in all)"
    )
    parser.add_argument(
        "--until", type=int, metavar="N", help="leave out later rounds (far-off ones)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _records(arguments: argparse.Namespace) -> list[Records]:
    if arguments.addresses is None:
        named = arguments.data_dir
        return [records_in(folder) for folder in (named if isinstance(named, list) else [named])]
    key = None if arguments.swarm_key is None else load_swarm_key(arguments.swarm_key)

    async def fetch() -> list[Records]:
        return [await fetch_records(address, key=key) for address in arguments.addresses]

    try:
        return trio.run(fetch)
    except BaseExceptionGroup as group:
        raise root_error(group) from None


def _run(arguments: argparse.Namespace, sources: Sequence[Records]) -> int:
    from shoal_lab.judge_report.figure import draw

    chosen = [_of_one_swarm(source.good) for source in sources]
    swarms = swarms_of([records for records in chosen if records])
    comparisons = _compared(swarms, arguments.model, arguments.window, arguments.until)
    if not comparisons:
        raise RecordsError("there are no records to report on")
    judges = ", ".join(source.judge for source in sources)
    total = sum(map(len, swarms))
    note = f"{'Judge' if len(sources) == 1 else 'Judges'} {judges}; {total} records."
    figures = draw(arguments.out, comparisons, note=note)
    report = {
        "schema_version": SCHEMA_VERSION,
        "judges": [
            _source_json(source, records) for source, records in zip(sources, chosen, strict=True)
        ],
        "swarms": len(swarms),
        "records": total,
        "models": [one.to_json() for one in comparisons],
        "figures": [str(path) for path in figures],
    }
    content = json.dumps(report, indent=1).encode()
    write_atomically(arguments.out / "report.json", content)
    if arguments.json:
        say_json(report)
    else:
        _show(Terminal(), report, comparisons)
    return EXIT_OK


def _source_json(source: Records, chosen: Sequence[JudgeRecord]) -> dict[str, Any]:
    return {
        "judge": source.judge,
        "swarm": chosen[-1].swarm_digest.hex() if chosen else None,
        "records": len(chosen),
        "records_refused": source.refused,
        "records_missing": source.missing,
        "records_of_other_swarms": len(source.good) - len(chosen),
        "challenges_unanswered": unanswered(chosen),
    }


def _of_one_swarm(records: Sequence[JudgeRecord]) -> list[JudgeRecord]:
    """Records of the swarm that was judged last: another's questions are not comparable."""
    return [one for one in records if one.swarm_digest == records[-1].swarm_digest]


def _compared(
    swarms: Sequence[Sequence[JudgeRecord]],
    model: str | None,
    window: int | None,
    until: int | None,
) -> list[ModelComparison]:
    """One comparison a model, the one with the most records first."""
    counts = Counter(record.model_name for swarm in swarms for record in swarm)
    names = [name for name, _ in counts.most_common() if model in (None, name)][:MAX_MODELS]
    return [
        compare(
            [[record for record in swarm if record.model_name == name] for swarm in swarms],
            model=name,
            window_rounds=window,
            until=until,
        )
        for name in names
    ]


def _show(
    console: Terminal, report: dict[str, Any], comparisons: Sequence[ModelComparison]
) -> None:
    table = Table()
    for name in COLUMNS:
        table.add_column(name)
    for one in comparisons:
        for mode in Mode:
            if (arm := one.total.get(mode)) is None:
                continue
            table.add_row(
                visible_name(one.model),
                str(mode),
                str(arm.swarms),
                str(arm.peers),
                str(arm.answers),
                f"{arm.mean:.3f}",
                "–" if arm.error is None else f"{arm.error:.3f}",
            )
        p = "no p" if one.p is None else f"p = {one.p:.3g}"
        table.add_row(*("",) * (len(COLUMNS) - 1), p, end_section=True)
    console.print(table)
    if report["swarms"] == 1:
        console.print(
            "one swarm proves nothing, however many its peers: they learn from each other. Name "
            "the judges of several (--data-dir or --from, each time)"
        )
    for judge in report["judges"]:
        left_out = [
            f"{judge[f'records_{why}']} {why.replace('_', ' ')}"
            for why in ("refused", "missing", "of_other_swarms")
        ]
        console.print(
            f"{judge['records']} records of judge {judge['judge']}; {', '.join(left_out)}; "
            f"{judge['challenges_unanswered']} questions unanswered"
        )
    console.print(f"figure: {report['figures'][0]}", soft_wrap=True)
