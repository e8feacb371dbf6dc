"""An environment for tests, and its family."""

from __future__ import annotations

from pathlib import Path

from shoal_tasks.sandbox.audit import AuditGuard
from shoal_tasks.spec import FamilySpec
from shoal_tasks.task_file import load_task_file
from shoal_tasks.worker.environment import EnvironmentTasks, load_game
from shoal_tasks.worker.item_limit import ItemLimit
from shoal_tasks.worker.user_code import preload_imports
from tests.support.task_files import task_file

GUESS = '''
class Game:
    """A number from 1 to 6 is to be guessed, in at most six guesses."""

    def reset(self, seed):
        self.secret = seed % 6 + 1
        self.left = 6
        return "Guess a number from 1 to 6."

    def step(self, message):
        self.left -= 1
        text = message.strip()
        if text == str(self.secret):
            return "Right!", 1, True
        if not (text.isascii() and text.isdigit()):
            return "That is no number.", 0, self.left == 0
        side = "higher" if int(text[:3]) < self.secret else "lower"
        return f"It is {side}.", 0.1, self.left == 0
'''


def game_file(folder: Path, source: str = GUESS, **fields: object) -> Path:
    """Write an environment and its task file; return the task file."""
    (folder / "game.py").write_text(source)
    return task_file(folder, "guess", **{"environment": "game.py", "max_turns": 8, **fields})


def local_games(spec: FamilySpec, item_seconds: float = 0.2) -> EnvironmentTasks:
    """Return the games in this process: a sandbox takes a second, and few tests need it."""
    source, limit = Path(spec.path).read_bytes(), ItemLimit(item_seconds)
    preload_imports(source, spec.path)
    guard = AuditGuard()
    return EnvironmentTasks(spec, load_game(spec, source, limit, guard), limit, guard)


def game_family(folder: Path, source: str = GUESS, **fields: object) -> FamilySpec:
    """Return the family of an environment that is written to `folder`."""
    return load_task_file(game_file(folder, source, **fields))
