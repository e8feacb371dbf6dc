"""Where Python processes of ours look for modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shoal_base.children import (
    SAFE_PATH,
    environment,
    inherited,
    leave_as_program,
    leave_current_folder,
    python,
)

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change into a user's folder that has a package with the name of one of ours."""
    (tmp_path / "policy.py").write_text("raise SystemExit('not yours')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delenv(SAFE_PATH, raising=False)
    return tmp_path


def test_a_child_does_not_look_into_the_current_folder(foreign: Path) -> None:
    shown = subprocess.run(
        python("-c", "import sys; print(sys.path)"),
        cwd=foreign,
        env={key: value for key, value in environment().items() if key != SAFE_PATH},
        capture_output=True,
        text=True,
        check=True,
    )
    assert repr(str(foreign)) not in shown.stdout
    assert "''" not in shown.stdout


@pytest.mark.parametrize("named", ["", ".", "{here}", "x:{here}:y"])
def test_an_environment_does_not_name_the_current_folder(
    foreign: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", named.format(here=foreign))
    made = environment()
    assert made[SAFE_PATH] == "1"
    assert made["PYTHONPATH"] == ("x:y" if ":" in named else "")


def test_a_checkout_that_one_stands_in_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:proto")
    assert environment()["PYTHONPATH"] == f"{ROOT}:proto"


def test_what_a_library_starts_has_it_too_and_no_longer_than_that(
    foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(foreign))
    before = dict(os.environ)
    with inherited():
        assert os.environ[SAFE_PATH] == "1"
        assert os.environ["PYTHONPATH"] == ""
    assert dict(os.environ) == before


def test_this_process_leaves_the_folder(foreign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["", str(foreign), *sys.path])
    with inherited():  # undoes what this does to the environment
        leave_current_folder()
        assert "" not in sys.path
        assert str(foreign) not in sys.path


def test_who_only_imports_a_package_of_ours_keeps_its_path(
    foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["notebook.py"])
    leave_as_program()
    assert str(foreign) in sys.path
