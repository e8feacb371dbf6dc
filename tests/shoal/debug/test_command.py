"""`shoal debug` where it is asked for what it does not know."""

from __future__ import annotations

import pytest

from shoal.__main__ import main


@pytest.mark.parametrize(
    "argv",
    [
        ["debug"],
        ["debug", "dreams"],
        ["debug", "rollouts", "--limit", "0"],
        ["debug", "rollouts", "--limit", "few"],
        ["debug", "status", "--follow"],
    ],
    ids=" ".join,
)
def test_debug_refuses_what_it_does_not_know(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(argv)
    assert end.value.code == 2
    assert "Traceback" not in capsys.readouterr().err
