"""`shoal logs`: the logs of all processes of a data directory, merged by time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from shoal.log_lines import LEVELS, LOG_FILES, LogEntry, growing, is_at_least, latest, logs_in
from shoal.nearby import folder_with
from shoal_base.lines import say, say_json
from shoal_base.waits import POLL_S
from shoal_ipc.answers.form import to_json
from shoal_settings.exits import EXIT_NO_NODE, EXIT_OK, fail
from shoal_settings.parser import Parser, data_dir_flag, whole

DESCRIPTION = """\
Show the logs of a node and its trainer, of a bootstrap peer or of a judge, merged by time. The
processes may be running or have ended.

  shoal logs                       the last lines
  shoal logs -f --level warning    new warnings and errors

Exit codes: 0 ok, 2 usage, 3 nothing was logged there."""


def main(argv: Sequence[str]) -> int:
    """Run `shoal logs`; return the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        folder = _folder(arguments.data_dir)
        news = growing(folder)
        for entry in latest(logs_in(folder), arguments.lines, at_least=arguments.level):
            _show(entry, as_json=arguments.json)
        while arguments.follow:
            time.sleep(POLL_S)
            for entry in (one for log in news for one in log.new_entries()):
                if is_at_least(entry, arguments.level):
                    _show(entry, as_json=arguments.json)
    except (KeyboardInterrupt, BrokenPipeError):
        pass
    return EXIT_OK


def _folder(named: Path) -> Path:
    found = folder_with(LOG_FILES[0], named)
    if not logs_in(found):
        message = f"nothing was logged in {found}; name the --data-dir of a node"
        raise fail("logs", message, EXIT_NO_NODE)
    return found


def _show(entry: LogEntry, *, as_json: bool) -> None:
    if as_json:
        say_json(to_json(entry))
        return
    for line in entry.lines():
        say(line)


def _parser() -> Parser:
    parser = Parser(prog="shoal logs", description=DESCRIPTION)
    data_dir_flag(parser, "the peer's folder (.shoal/node, or the one used last)")
    parser.add_argument("-f", "--follow", action="store_true", help="print new lines until Ctrl-C")
    parser.add_argument(
        "--lines", type=whole(0), default=40, metavar="N", help="number of lines at first"
    )
    parser.add_argument("--level", choices=LEVELS[:-1], default="debug", help="lowest level shown")
    parser.add_argument(
        "--json",
        action="store_true",
        help="one JSON object a line: time, level, process, logger, message, traceback",
    )
    return parser
