"""What a process prints and logs, given any text."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_base.lines import VisibleRecord, readable_json, say, say_json, say_lines
from tests.support.hostile_text import ACTING, ALL_OF_THEM, acting_in

VALUES = st.recursive(
    st.none()
    | st.integers()
    | st.text(st.characters(codec=None) | st.sampled_from(sorted(ACTING))),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
GUARDED = """
import logging, sys, threading, warnings
from shoal_base.lines import guard_process
text = {text!r}
guard_process()
guard_process()
logging.basicConfig(format="%(levelname)s node: %(message)s", stream=sys.stderr)
log = logging.getLogger("any.library")
log.warning("%s", text)
log.warning(text.replace("%", "%%"))
log.warning("of %(who)s", {{"who": text}})
try:
    raise ValueError(text)
except ValueError:
    log.exception("failed: %s", text, stack_info=True)
thread = threading.Thread(target=lambda: log[text])
thread.start()
thread.join()
warnings.warn(text)
print(chr(0x2026))
raise RuntimeError(text)
"""


def test_one_line_on_either_stream(capsys: pytest.CaptureFixture[str]) -> None:
    say(ALL_OF_THEM)
    say(ALL_OF_THEM, error=True)
    captured = capsys.readouterr()
    for line in (captured.out, captured.err):
        assert line.count("\n") == 1
        assert not acting_in(line[:-1])


def test_text_of_our_own_keeps_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    say_lines("one\n  two\x1b")
    assert capsys.readouterr().out == "one\n  two\\x1b\n"


@given(VALUES)
def test_json_means_the_same_and_nothing_in_it_acts(value: Any) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        say_json(value)
    line = printed.getvalue().removesuffix("\n")
    assert line.isascii()
    readable = readable_json(value)
    for shown in (line, readable):
        assert not acting_in(shown)
        assert json.loads(shown) == value


def test_readable_json_leaves_what_people_read() -> None:
    assert readable_json({"q": "größer\u202e 你"}) == '{"q": "größer\\u202e 你"}'


def test_a_traceback_in_a_log_keeps_its_lines_and_passes_for_no_record() -> None:
    try:
        raise ValueError("one\nWARNING node: all is lost\x1b[2J")
    except ValueError:
        record = VisibleRecord("a", logging.ERROR, "p", 1, "no", (), sys.exc_info())
    shown = logging.Formatter("%(levelname)s node: %(message)s").format(record)
    first, *rest = shown.split("\n")
    assert first == "ERROR node: no"
    assert len(rest) > 3
    assert all(line.startswith("    ") for line in rest)
    assert not acting_in("".join(rest))


def test_a_guarded_process_cannot_forget_it() -> None:
    """Any logger, a thread's end, the process's own: nothing that acts is written."""
    ended = subprocess.run(
        [sys.executable, "-c", GUARDED.format(text=ALL_OF_THEM)],
        capture_output=True,
        timeout=60,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    )
    assert ended.returncode == 1
    assert ended.stdout == b"\\u2026\n"
    errors = ended.stderr.decode("utf-8")
    assert errors.count("WARNING node: ") == 3
    assert "RuntimeError: " in errors
    assert "TypeError: " in errors
    assert "UserWarning: " in errors
    assert not acting_in(errors) - {"\n"}
