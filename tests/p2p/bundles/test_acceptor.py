"""Tasks that a node lacks: fetched, shown and accepted, or refused with the reason."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from shoal_lab.simulation.parts import at_once
from shoal_p2p.bundles import acceptor
from shoal_p2p.bundles.acceptor import TaskAcceptor, TaskOffer
from shoal_p2p.bundles.asking import build_deciders, describe_offer
from shoal_p2p.net.request import RequestError, RequestFailure
from shoal_settings.accept_tasks import AcceptRule, parse_accept_rule
from shoal_settings.schema import Settings
from shoal_tasks import data_files, swarm
from shoal_tasks.bundle import TASKS_FOLDER, accepted_folder, accepted_task_files, bundle_of
from shoal_tasks.spec import MATH_VERIFY, OPENENV, environment
from shoal_tasks.swarm import families_of, specs_of
from shoal_tasks.task_file import load_task_file
from shoal_wire.manifest import make_manifest
from shoal_wire.task_codec import decode_task_query, encode_task_answer
from shoal_wire.task_messages import PieceQuery, TaskRefusal, TaskRefusalReason
from shoal_wire.types import PeerId
from tests.p2p.bundles.cases import AUTHOR, TransferFixture, author_spec
from tests.support.task_files import task_file

pytestmark = pytest.mark.virtual_time

BAD_REWARD = "def reward(completions, **_):\n    return [1.0 for _ in completions]\n"


class Joiner:
    """A data directory that lacks the task of a swarm, and the person who decides about it."""

    def __init__(self, fixture: TransferFixture, folder: Path, *, accepts: bool = True) -> None:
        self.fixture, self.folder = fixture, folder
        self.manifest = make_manifest("swarm", families_of([fixture.spec]))
        self.offers: list[TaskOffer] = []
        self._accepts = accepts

    async def decide(self, offer: TaskOffer) -> bool:
        self.offers.append(offer)
        return self._accepts

    async def bring(
        self,
        setting: str = "20MB,sums",
        task_files: Sequence[str] = (),
    ) -> None:
        refuse, _ = build_deciders(Settings(accept_tasks=setting, json_output=True))
        acceptor = TaskAcceptor(
            client=self.fixture.client,
            data_dir=self.folder,
            refuse=refuse,
            accept=self.decide,
            in_thread=at_once,
        )
        await acceptor.bring(self.manifest, task_files)

    @property
    def has_task(self) -> bool:
        files = accepted_task_files(self.folder)
        if not files:
            assert not list((self.folder / TASKS_FOLDER).glob("*/*")), "nothing stays behind"
            return False
        return [one.digest for one in specs_of(self.manifest, files)] == [self.fixture.spec.digest]


@pytest.mark.parametrize(
    ("fields", "setting", "why"),
    [
        ({}, "20MB", ""),
        ({"reward": "reward.py"}, "20MB,sums", ""),
        ({"reward": "reward.py"}, "20MB", "it holds code, and --accept-tasks does not name it"),
        ({"reward": "reward.py"}, "20MB,other", "does not name it: add ,sums"),
        ({}, "1kB", "it has 3,401 bytes, and --accept-tasks allows 1,000"),
        ({}, "none", "--accept-tasks allows 0"),
        ({}, "ask", "there is no terminal to ask at: --accept-tasks 20MB fetches it"),
        ({"reward": "reward.py"}, "ask", "--accept-tasks 20MB,sums fetches it"),
        ({"share": False}, "20MB", "no connected peer shares its files: ask its author"),
    ],
)
async def test_a_script_states_what_it_accepts(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    fields: dict[str, Any],
    setting: str,
    why: str,
) -> None:
    spec = author_spec(tmp_path / "a", num_rows=20 if setting != "1kB" else 90, **fields)
    joiner = Joiner(TransferFixture(spec=spec), tmp_path / "j")
    await joiner.bring(setting)
    assert joiner.has_task is (not why)
    if why:
        assert "task sums is skipped: " in caplog.text and why in caplog.text
        assert len(joiner.offers) == 0
    again = len(joiner.fixture.here.requests)
    await joiner.bring(setting)
    if not why:
        assert len(joiner.fixture.here.requests) == again, "it is here already"


async def test_what_is_declined_leaves_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    joiner = Joiner(
        TransferFixture(spec=author_spec(tmp_path / "a")), tmp_path / "j", accepts=False
    )
    await joiner.bring()
    assert not joiner.has_task and "you declined it" in caplog.text


async def test_a_task_whose_wrong_answers_earn_most_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = author_spec(tmp_path / "a", code=BAD_REWARD, reward="reward.py")
    joiner = Joiner(TransferFixture(spec=spec), tmp_path / "j")
    await joiner.bring()
    assert len(joiner.offers) == 1, "its code has not run before"
    assert not joiner.has_task and "it is not sound: " in caplog.text


PROGRAMS = [
    {
        "question": f"add {n}",
        "test": f"assert add(1) == {n + 1}",
        "canonical_solution": f"def add(x): return x + {n}",
    }
    for n in range(9)
]


async def test_unit_tests_in_rows_are_code(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = load_task_file(
        task_file(tmp_path / "a", "programs", PROGRAMS, verifier="tests", share=True)
    )
    joiner = Joiner(TransferFixture(spec=spec), tmp_path / "j")
    await joiner.bring("20MB")
    assert "it holds code, and --accept-tasks does not name it: add ,programs" in caplog.text
    assert joiner.offers == [] and not joiner.has_task
    await joiner.bring("20MB,programs")
    (offer,) = joiner.offers
    assert "the unit tests in its rows would run here" in "\n".join(
        describe_offer(offer, "Landlock")
    )
    assert joiner.has_task


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (b"no rows\n" * 9, "not a row of a rows file"),
        (b'{"question": "q"}\n' * 9, "not a row of a rows file"),
        (b'{"question": "q", "answer": "a"}\n' * 3, "rows"),
        (b'{"question": "a", "answer": "a"}\n', "held_out|rows|pays|sound"),
    ],
)
async def test_rows_that_are_none_are_never_offered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, rows: bytes, why: str
) -> None:
    """The author states what they like of a file: only the digest is checked on the way."""
    spec = author_spec(tmp_path / "a")
    config = {**spec.config, "sha256": hashlib.sha256(rows).hexdigest()}
    (tmp_path / "bad.jsonl").write_bytes(rows)
    bad = replace(spec, config=config, path=str(tmp_path / "bad.jsonl"))
    joiner = Joiner(TransferFixture(spec=bad), tmp_path / "j")
    await joiner.bring("20MB")
    assert joiner.offers == [] and not joiner.has_task
    assert re.search(f"task sums is skipped: .*({why})", caplog.text), caplog.text
    assert caplog.text.count("\n") <= 2


async def test_one_whose_verifier_is_missing_is_not_fetched(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    joiner = Joiner(TransferFixture(spec=author_spec(tmp_path / "a", verifier="math")), tmp_path)
    with monkeypatch.context() as without:
        without.setitem(swarm._PACKAGES, MATH_VERIFY, "no-such-package")
        swarm.installed_version.cache_clear()
        await joiner.bring("20MB")
    swarm.installed_version.cache_clear()
    assert "it needs math_verify 0.9.0: pip install 'shoal[math]'" in caplog.text
    assert joiner.fixture.here.requests == []


async def test_accepted_tasks_have_a_quota_that_one_begun_before_is_not_charged_for_twice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    joiner = Joiner(TransferFixture(spec=author_spec(tmp_path / "a")), tmp_path / "j")
    size = bundle_of(joiner.fixture.spec).num_bytes
    folder = accepted_folder(tmp_path / "j", joiner.fixture.spec)
    folder.mkdir(parents=True)
    (folder / "rows.jsonl.part").write_bytes(b"x" * 40)
    monkeypatch.setattr(acceptor, "MAX_ALL_BYTES", size - 1)
    await joiner.bring("20MB")
    assert "accepted tasks have 0 bytes, at most" in caplog.text and joiner.offers == []
    monkeypatch.setattr(acceptor, "MAX_ALL_BYTES", size)
    await joiner.bring("20MB")
    assert joiner.has_task


@pytest.mark.parametrize(
    ("typed", "accepts"),
    [("y", True), ("Yes ", True), ("", False), ("n", False), ("yes, do", False), ("\x04", False)],
)
def test_only_a_yes_at_the_terminal_accepts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, accepts: bool
) -> None:
    spec = author_spec(tmp_path / "a")
    offer = TaskOffer(
        spec=spec,
        bundle=bundle_of(spec),
        sent_by=AUTHOR,
        samples=(),
    )
    ours, theirs = os.openpty()
    with os.fdopen(theirs) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        os.write(ours, typed.encode() + b"\n")
        refuse, ask = build_deciders(Settings())
        assert refuse(spec, offer.bundle) == "", "a person is shown the size"
        assert trio.run(ask, offer) is accepts
    os.close(ours)


async def test_many_families_that_no_peer_shares_cost_one_wait(tmp_path: Path) -> None:
    fixture = TransferFixture(spec=author_spec(tmp_path / "a", share=False))
    joiner = Joiner(fixture, tmp_path / "j")
    specs = [
        replace(fixture.spec, name=f"f{n}", config={**fixture.spec.config, "rows": 9 + n})
        for n in range(100)
    ]
    joiner.manifest = make_manifest("swarm", families_of(specs))
    began = trio.current_time()
    await joiner.bring("20MB")
    assert 20 < trio.current_time() - began < 60
    assert len(fixture.here.requests) >= 100, "each is asked for once all the same"


async def test_a_data_set_of_a_hub_is_downloaded_once_accepted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_downloads = 0

    def read_hub(_source: str) -> Iterator[dict[str, str]]:
        nonlocal num_downloads
        num_downloads += 1
        return iter([{"question": f"{n} + 1?", "answer": str(n + 1)} for n in range(9)])

    monkeypatch.setattr(data_files, "read_hub", read_hub)
    source = f"hf:org/sums@{'5' * 40}"
    spec = load_task_file(task_file(tmp_path / "a", "sums", rows=source, share=True))
    fixture, num_downloads = TransferFixture(spec=spec), 0
    joiner = Joiner(fixture, tmp_path / "j")
    await joiner.bring("20MB")
    assert f"it is the data set {source} of any size, and --accept-tasks does" in caplog.text
    declines = Joiner(fixture, tmp_path / "j", accepts=False)
    await declines.bring("20MB,sums")
    (offer,) = declines.offers
    assert f"{source} is downloaded from its hub once you accept" in "\n".join(
        describe_offer(offer, "")
    )
    assert num_downloads == 0 and not joiner.has_task
    await joiner.bring("20MB,sums")
    assert num_downloads == 1 and joiner.has_task
    queries = [decode_task_query(one.payload) for one in fixture.here.requests]
    assert not any(isinstance(one, PieceQuery) for one in queries)
    for file in range(2):
        query = PieceQuery(family=spec.digest, file=file, piece=0)
        assert fixture.shared.piece(query) is None, "the rows themselves are not served"
    (accepted,) = accepted_task_files(tmp_path / "j")
    assert load_task_file(Path(accepted)).hub_rows == spec.hub_rows, "it travels on"


async def test_a_peer_that_does_not_finish_is_asked_last(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of any members: a bootstrap, a member without the task, one that stops, and an honest one."""
    fixture = TransferFixture(spec=author_spec(tmp_path / "a"))
    others = [PeerId(f"a{n}") for n in range(3)]
    honest = fixture.here.answers.copy()
    (real,) = honest.values()

    async def answer(peer_id: PeerId, request: bytes) -> bytes:
        is_piece = isinstance(decode_task_query(request), PieceQuery)
        if peer_id == others[0] or (peer_id == others[1] and is_piece):
            raise RequestError(RequestFailure.UNSUPPORTED, "no such protocol")
        if peer_id == others[2]:
            return encode_task_answer(TaskRefusal(reason=TaskRefusalReason.NOT_SHARED))
        return await real(peer_id, request)

    for one in others:
        fixture.here.connect(one)
    fixture.here.answers = dict.fromkeys(honest, answer)
    joiner = Joiner(fixture, tmp_path / "j")
    await joiner.bring()
    assert joiner.has_task and fixture.verdicts == []
    assert caplog.text.count("did not send all of its files") <= 1


async def test_a_family_on_a_server_comes_as_its_description(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = {"environment": "wordle", "version": "1.0", "schema_sha256": "", "games_sha256": ""}
    spec = environment("words", OPENENV, {**server, "max_turns": 6, "reward_range": [0, 1]})
    joiner = Joiner(TransferFixture(spec=author_spec(tmp_path / "a")), tmp_path / "j")
    joiner.manifest = make_manifest("swarm", families_of([spec]))
    await joiner.bring()
    path = accepted_folder(tmp_path / "j", spec) / "server.toml"
    assert path.is_file() and joiner.fixture.here.requests == []
    assert "task words is skipped: it needs the OpenEnv server of wordle: start one" in caplog.text
    assert str(path) in caplog.text and caplog.text.count("\n") == 1


async def test_the_person_sees_what_they_accept(tmp_path: Path) -> None:
    spec = author_spec(
        tmp_path / "a",
        reward="reward.py",
        licence="CC0",
        description="One\nadded. " * 40,
    )
    # A peer's title was checked by no task file.
    spec = replace(spec, config={**spec.config, "title": "Sums\x1b[2J\nsizes"})
    joiner = Joiner(TransferFixture(spec=spec), tmp_path / "j")
    await joiner.bring()
    (offer,) = joiner.offers
    lines = list(describe_offer(offer, "Landlock"))
    text = "\n".join(lines)
    assert "\x1b" not in text and all("\n" not in line for line in lines)
    for part in (
        "task sums: Sums",
        AUTHOR,
        "bytes in 2 files, 9 questions",
        "licence  CC0",
        "reward.py would run here, confined by: Landlock",
        str(tmp_path / "j"),
        "question 0 + 1?.",
        "answer   1",
    ):
        assert part in text
    assert max(map(len, lines)) < 500


async def test_a_file_of_ones_own_is_used_and_nothing_fetched(tmp_path: Path) -> None:
    spec = author_spec(tmp_path / "a")
    joiner = Joiner(TransferFixture(spec=spec), tmp_path / "j")
    await joiner.bring(task_files=[str(tmp_path / "a/sums.toml")])
    assert joiner.fixture.here.requests == [] and not joiner.has_task


async def test_a_wrong_reply_moves_the_request_to_another_peer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fixture = TransferFixture(spec=author_spec(tmp_path / "a"))
    liar = PeerId("a liar, who is asked first")
    fixture.here.connect(liar)
    honest = fixture.here.answers.copy()

    async def answer(peer_id: PeerId, request: bytes) -> bytes:
        (real,) = honest.values()
        return b"\xff" if peer_id == liar else await real(peer_id, request)

    fixture.here.answers = dict.fromkeys(honest, answer)
    joiner = Joiner(fixture, tmp_path / "j")
    await joiner.bring()
    assert joiner.has_task and [peer_id for peer_id, _ in fixture.verdicts] == [liar]


def test_the_setting_is_read_exactly_or_refused() -> None:
    assert parse_accept_rule("ask") is None
    assert parse_accept_rule("none") == AcceptRule(max_bytes=0, names=frozenset())
    assert parse_accept_rule("20MB, words") == parse_accept_rule("20MB,words")
    assert parse_accept_rule("20MB") == AcceptRule(max_bytes=20_000_000, names=frozenset())
    found = parse_accept_rule("1GB,words,more words")
    assert found == AcceptRule(max_bytes=10**9, names=frozenset({"words", "more words"}))
    rng = random.Random(3)
    letters = "019kMGB,. -asknoe\n"
    for _ in range(3000):
        text = "".join(rng.choice(letters) for _ in range(rng.randrange(8)))
        try:
            rule = parse_accept_rule(text)
        except ValueError as error:
            assert "must be ask, none, or a size" in str(error)
        else:
            assert rule is None or (text == "none" or text.strip()[0].isdigit()), json.dumps(text)
