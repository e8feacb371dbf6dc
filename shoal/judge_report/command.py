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

from p2p.net.host import ListenError
from p2p.net.identity import IdentityError
from p2p.net.swarm_key import SwarmKeyError, load_swarm_key
from p2p.process import root_error
from shoal.judge_report.records import Records, RecordsError, fetch_records, records_in
from shoal.judge_report.stats import Comparison, compare, unanswered
from shoal_base.files import write_atomically
from shoal_base.lines import say_json
from shoal_base.terminal import Terminal
from shoal_base.visible import visible_name
from shoal_settings.exits import EXIT_FAILED, EXIT_OK, EXIT_USAGE, UsageExit, fail
from shoal_settings.parser import Parser, path
from shoal_wire.judge_messages import JudgeRecord, Mode

DESCRIPTION = """\
Compare nodes that learn from others (swarm) with nodes that do not (silo), by the records of a
judge: its own folder, also while it runs, or those that it gives to anybody who asks. Every record
is verified; what the judge has not signed does not count. Needs the extra `experiment`.
Exit codes: 0 ok, 1 failed, 2 usage."""

SCHEMA_VERSION = 1
MAX_MODELS = 16
"""Names are the peers' own word: those with the most records are compared."""
_COMMAND = "judge report"


def main(argv: Sequence[str]) -> int:
    """Run `shoal judge report`; return the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        for module in ("matplotlib", "scipy"):
            if importlib.util.find_spec(module) is None:
                raise fail(_COMMAND, f"{module} is not installed: pip install 'shoal[experiment]'")
        for name in ("window", "until"):
            if (value := getattr(arguments, name)) is not None and value < 1:
                raise fail(_COMMAND, f"--{name} must be 1 or more")
        return _run(arguments, _records(arguments))
    except UsageExit as end:
        return end.code
    except (RecordsError, IdentityError, ListenError) as error:
        return fail(_COMMAND, str(error), EXIT_FAILED).code
    except SwarmKeyError as error:
        return fail(_COMMAND, str(error), EXIT_USAGE).code
    except OSError as error:
        where = error.filename or arguments.out
        return fail(_COMMAND, f"{where}: {error.strerror}", EXIT_FAILED).code


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="shoal judge report",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--data-dir", type=path, default=Path(".shoal/judge"), metavar="DIR", help="judge's folder"
    )
    source.add_argument(
        "--from", dest="address", metavar="MULTIADDR", help="ask the judge at this address"
    )
    parser.add_argument(
        "--swarm-key", type=path, metavar="FILE", help="key of a private swarm, for --from"
    )
    parser.add_argument(
        "--out", type=path, default=Path("judge-report"), metavar="DIR", help="(judge-report)"
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


def _records(arguments: argparse.Namespace) -> Records:
    if arguments.address is None:
        return records_in(arguments.data_dir)
    key = None if arguments.swarm_key is None else load_swarm_key(arguments.swarm_key)

    async def fetch() -> Records:
        return await fetch_records(arguments.address, key=key)

    try:
        return trio.run(fetch)
    except BaseExceptionGroup as group:
        raise root_error(group) from None


def _run(arguments: argparse.Namespace, records: Records) -> int:
    from shoal.judge_report.figure import draw

    chosen = _of_one_swarm(records.good)
    comparisons = _compared(chosen, arguments.model, arguments.window, arguments.until)
    if not comparisons:
        raise RecordsError("there are no records to report on")
    note = f"Judge {records.judge}; {len(chosen)} records."
    figures = draw(arguments.out, comparisons, note=note)
    report = {
        "schema_version": SCHEMA_VERSION,
        "judge": records.judge,
        "swarm": chosen[-1].swarm_digest.hex(),
        "records": len(chosen),
        "records_refused": records.refused,
        "records_missing": records.missing,
        "records_of_other_swarms": len(records.good) - len(chosen),
        "challenges_unanswered": unanswered(chosen),
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


def _of_one_swarm(records: Sequence[JudgeRecord]) -> list[JudgeRecord]:
    """Records of the swarm that was judged last: another's questions are not comparable."""
    return [one for one in records if one.swarm_digest == records[-1].swarm_digest]


def _compared(
    records: Sequence[JudgeRecord], model: str | None, window: int | None, until: int | None
) -> list[Comparison]:
    """One comparison a model, the one with the most records first."""
    counts = Counter(record.model_name for record in records)
    names = [name for name, _ in counts.most_common() if model in (None, name)][:MAX_MODELS]
    return [
        compare(
            [record for record in records if record.model_name == name],
            model=name,
            window_rounds=window,
            until=until,
        )
        for name in names
    ]


def _show(console: Terminal, report: dict[str, Any], comparisons: Sequence[Comparison]) -> None:
    table = Table()
    for name in ("model", "arm", "peers", "answers", "pass@1", "± se", "better, adjusted p < 0.05"):
        table.add_column(name)
    for one in comparisons:
        for mode in Mode:
            if (arm := one.total.get(mode)) is None:
                continue
            regions = [f"{a}-{b}" for a, b, better in one.regions if better is mode]
            table.add_row(
                visible_name(one.model),
                str(mode),
                str(arm.peers),
                str(arm.answers),
                f"{arm.mean:.3f}",
                f"{arm.error:.3f}" if arm.peers > 1 else "–",
                f"rounds {', '.join(regions)}" if regions else "-",
            )
        p = "too few peers" if one.p is None else f"p = {one.p:.3g}"
        table.add_row("", "", "", "", "", "", f"all rounds: {p}", end_section=True)
    console.print(table)
    left_out = [
        f"{report[f'records_{why}']} {why.replace('_', ' ')}"
        for why in ("refused", "missing", "of_other_swarms")
    ]
    console.print(
        f"{report['records']} records of judge {report['judge']}; {', '.join(left_out)}; "
        f"{report['challenges_unanswered']} questions unanswered"
    )
    console.print(f"figure: {report['figures'][0]}", soft_wrap=True)
