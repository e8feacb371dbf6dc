"""An author with a task that travels, and peers that send its files, or something else."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shoal_lab.simulation.parts import at_once
from shoal_p2p.bundles.client import TaskClient
from shoal_p2p.bundles.server import SharedTasks, TaskServeLimits, TaskServer, share_families
from shoal_tasks.spec import FamilySpec
from shoal_tasks.task_file import load_task_file
from shoal_wire.limits import TASKS_PROTOCOL
from shoal_wire.types import PeerId
from shoal_wire.verdict import Verdict
from tests.support.doubles.host import FakeHost
from tests.support.task_files import task_file

AUTHOR, JOINER = PeerId("author"), PeerId("joiner")
REWARD = """
def reward(completions, answer, **_):
    return [float(text.strip() == right) for text, right in zip(completions, answer)]
"""


def author_spec(
    folder: Path, *, num_rows: int = 9, chars: int = 1, code: str = REWARD, **fields: Any
) -> FamilySpec:
    """Return the family of a task file with `rows` rows, each question padded with spaces."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "reward.py").write_text(code)
    rows = [{"question": f"{n} + 1?{'.' * chars}", "answer": str(n + 1)} for n in range(num_rows)]
    return load_task_file(task_file(folder, "sums", rows, **{"share": True, **fields}))


@dataclass(kw_only=True)
class TransferFixture:
    """A server and a client whose hosts are joined by the test."""

    spec: FamilySpec
    limits: TaskServeLimits | None = None
    verdicts: list[tuple[PeerId, Verdict]] = field(default_factory=list)
    """Reports of either side, with the peer that is at fault."""

    def __post_init__(self) -> None:
        self.there, self.here = FakeHost(), FakeHost()
        self.there.connect(JOINER)
        self.here.connect(AUTHOR)
        self.shared = SharedTasks()
        share_families(self.shared, [self.spec], ())
        server = TaskServer(
            host=self.there,
            shared=self.shared,
            report=self._note,
            in_thread=at_once,
            limits=self.limits,
        )
        server.serve()
        self.here.answers[TASKS_PROTOCOL] = self.answer
        self.client = TaskClient(host=self.here, report=self._note, in_thread=at_once)

    async def answer(self, _peer_id: PeerId, request: bytes) -> bytes:
        """Answer as the author does."""
        return await self.there.ask(JOINER, TASKS_PROTOCOL, request)

    async def fetch(self, folder: Path) -> None:
        """Find a peer and fetch the files. Raises NoBundleError."""
        peer_id, bundle = await self.client.find(self.spec)
        await self.client.fetch(peer_id, self.spec, bundle, folder)

    def _note(self, peer_id: PeerId, _signer: PeerId | None, verdict: Verdict) -> None:
        self.verdicts.append((peer_id, verdict))
