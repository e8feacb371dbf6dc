"""A wheel has its licence and its authors, and installs no top-level name but shoal's."""

from __future__ import annotations

import email
import hashlib
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHA256 = "c71d239df91726fc519c6eb72d318ec65820627232b2f796219e87dcf35d0ab4"
"""Of the whole text, appendix included, as distributions ship it."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_licence_is_apaches_to_the_letter() -> None:
    text = (ROOT / "LICENSE").read_bytes()
    assert hashlib.sha256(text).hexdigest() == SHA256
    assert PROJECT["license"] == "Apache-2.0"
    assert "LICENSE" in (ROOT / "README.md").read_text(encoding="utf-8")
    # PyPI takes an SPDX expression or classifiers of licences, not both.
    assert not [one for one in PROJECT["classifiers"] if one.startswith("License ::")]


def test_a_wheel_contains_its_licence_and_no_foreign_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = pytest.importorskip("hatchling.builders.wheel", reason="comes with the extra `dev`")
    classifiers = pytest.importorskip("trove_classifiers").classifiers
    assert set(PROJECT["classifiers"]) <= classifiers
    monkeypatch.chdir(ROOT)
    (built,) = wheels.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(built) as wheel:
        (licence,) = [name for name in wheel.namelist() if name.endswith("/licenses/LICENSE")]
        (metadata,) = [name for name in wheel.namelist() if name.endswith("/METADATA")]
        assert wheel.read(licence) == (ROOT / "LICENSE").read_bytes()
        message = email.message_from_bytes(wheel.read(metadata))
        tops = {name.split("/")[0] for name in wheel.namelist()}
    assert all(top == "shoal" or top.startswith(("shoal_", "shoal-")) for top in tops), tops
    assert message["License-Expression"] == "Apache-2.0"
    assert message.get_all("License-File") == ["LICENSE"]
    assert message["Author"] == "The shoal authors"


def test_a_citation_names_this_version() -> None:
    yaml = pytest.importorskip("yaml", reason="comes with the extra `trainer`")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == PROJECT["version"]
    assert (cited["title"], cited["license"]) == (PROJECT["name"], PROJECT["license"])
    assert cited["authors"] == PROJECT["authors"]
    assert any("2509.08721" in one["url"] for one in cited["references"])
